"""An apt repository laid out as Termux's main one."""

from __future__ import annotations

from pathlib import Path

from orchestrator.lab.termux.host import HostPrograms


def build_mirror(out: Path, host: HostPrograms, *, prefix: str) -> Path:
    """Write the repository to `out` and return the directory a `deb URL stable main` line points at."""
    del host, prefix
    (out / "dists" / "stable" / "main").mkdir(parents=True, exist_ok=True)
    return out
