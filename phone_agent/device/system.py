"""The system below: paths of sysfs, procfs and the Android binaries, and small programs that may hang."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SystemPaths:
    """Tests substitute fixture trees."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    android: Path = Path("/system/bin")

    @property
    def cpus(self) -> Path:
        return self.sys / "devices" / "system" / "cpu"


DEFAULT_PATHS = SystemPaths()


def output(argv: Sequence[str], *, timeout: float) -> str | None:
    """The standard output of the program; None if it is missing, fails or times out."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return None
    with process:
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            return None
    return text.decode(errors="replace") if process.returncode == 0 else None


def find(name: str, directory: Path) -> str:
    """The program in PATH, or in a directory that is not in the PATH of Termux."""
    return shutil.which(name) or str(directory / name)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process group: the Termux:API scripts leave a helper behind that would keep the pipe open."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout:
        process.stdout.close()
