"""Preloaded libraries that give the host's programs the behavior that Termux patches into its own."""

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

_MIN_GLIBC = "2.36"  # libraries built for this version also work with newer ones


@cache
def compile_shim(sources: str, host: HostPrograms, flags: tuple[str, ...] = ()) -> bytes:
    """Compile C files of this directory to a shared library. Cached per process."""
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
    if host.is_native:
        return ["gcc"]
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{host.machine}-linux-gnu.{_MIN_GLIBC}"]


def _defines(host: HostPrograms) -> list[str]:
    """OpenSSH older than 9.8 rejects the penalty options that Termux's sshd accepts, so the shim implements them."""
    sshd = host.locate("sshd")
    supported = sshd is not None and b"persourcepenalties" in sshd.read_bytes().lower()
    return [] if supported else ["-DSSHD_WITHOUT_PENALTIES"]
