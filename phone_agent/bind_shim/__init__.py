"""Binds the listening sockets of Open MPI to the wired address: a library preloaded into mpirun, daemons and ranks.

Open MPI 4.1 can restrict the network it connects on, but not the one it listens on: on a phone with Wi-Fi, its ports
would be open to anyone there. ~/.clusterctl/wired (provisioning/wired.sh) starts a command with the library preloaded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from phone_agent.contract import directory_cache
from phone_agent.core import build

SOURCE = Path(__file__).parent / "bind_shim.c"
LIBRARY = "libbind_shim.so"
SHIPPED = Path(__file__).parent / LIBRARY


def cached(target: build.Target) -> Path:
    """Builds the library once per source and target, and caches it."""
    name = hashlib.sha256(SOURCE.read_bytes() + repr(target).encode()).hexdigest()[:16]
    out = build.cache_dir() / f"bind-shim-{target.name}-{name}"
    if not directory_cache.use(out) or not (out / LIBRARY).is_file():
        build.build_library(target, SOURCE, out / LIBRARY)
        directory_cache.prune(out)
    return out / LIBRARY
