"""Starts the rank of a run on behalf of Open MPI's daemon, whatever mpirun asks the daemon to start.

The head phone runs mpirun and may be hostile: without this program, it could run any command on the other phones.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from phone_agent.contract import directory_cache
from phone_agent.core import build

SOURCE = Path(__file__).parent / "rank_launcher.c"
PROGRAM = "rank_launcher"
SHIPPED = Path(__file__).parent / PROGRAM


def cached(target: build.Target) -> Path:
    """Builds the program once per source and target, and caches it."""
    name = hashlib.sha256(SOURCE.read_bytes() + repr(target).encode()).hexdigest()[:16]
    out = build.cache_dir() / f"rank-launcher-{target.name}-{name}"
    if not directory_cache.use(out) or not (out / PROGRAM).is_file():
        build.build_executable(target, SOURCE, out / PROGRAM)
        directory_cache.prune(out)
    return out / PROGRAM
