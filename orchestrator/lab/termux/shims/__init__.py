"""Small libraries that give this computer's programs the behaviour Termux patches into its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.paths import cache_dir

_OLDEST_GLIBC = "2.36"  # a library made for it runs with all newer ones


@cache
def compiled(sources: str, host: HostPrograms, flags: tuple[str, ...] = ()) -> bytes:
    """The shared library made from C files of this directory; compiled once a process."""
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "shim.so")
        argv = [*_compiler(host), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", *_defines(host)]
        done = subprocess.run(
            [*argv, "-o", str(library), *sources.split(), *flags, "-ldl"],
            cwd=Path(__file__).parent,
            env={"ZIG_GLOBAL_CACHE_DIR": str(cache_dir() / "zig"), **os.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterctlError(f"cannot compile {sources}: {done.stderr.strip()}", remedy="make setup")
        return library.read_bytes()


def _compiler(host: HostPrograms) -> list[str]:
    if host.are_of_this_computer:
        return ["gcc"]
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{host.machine}-linux-gnu.{_OLDEST_GLIBC}"]


def _defines(host: HostPrograms) -> list[str]:
    """Termux's sshd knows penalties (OpenSSH 9.8 and newer); an older one would refuse the whole configuration."""
    sshd = host.locate("sshd")
    knows = sshd is not None and b"persourcepenalties" in sshd.read_bytes().lower()
    return [] if knows else ["-DSSHD_WITHOUT_PENALTIES"]
