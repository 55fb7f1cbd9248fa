"""System paths: sysfs, procfs and the Android binaries. Tests substitute fixture trees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SystemPaths:
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    android: Path = Path("/system/bin")

    @property
    def cpus(self) -> Path:
        return self.sys / "devices" / "system" / "cpu"


DEFAULT_PATHS = SystemPaths()
