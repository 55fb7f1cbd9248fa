"""Small libraries that give this computer's programs the behaviour Termux patches into its own."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from orchestrator.errors import ClusterctlError

_SSHD = Path("/usr/sbin/sshd")


@cache
def compiled(sources: str) -> bytes:
    """The shared library made from C files of this directory; compiled once a process."""
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "shim.so")
        argv = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", *_defines()]
        done = subprocess.run(
            [*argv, "-o", str(library), *sources.split(), "-ldl"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterctlError(f"cannot compile {sources}: {done.stderr.strip()}", remedy="make setup")
        return library.read_bytes()


def _defines() -> list[str]:
    """Termux's sshd knows penalties (OpenSSH 9.8 and newer); an older one would refuse the whole configuration."""
    knows = b"persourcepenalties" in _SSHD.read_bytes().lower()
    return [] if knows else ["-DSSHD_WITHOUT_PENALTIES"]
