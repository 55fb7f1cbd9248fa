"""Where the kernel and Android show themselves. Tests point these at fixture trees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Roots:
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    android: Path = Path("/system/bin")

    @property
    def cpus(self) -> Path:
        return self.sys / "devices" / "system" / "cpu"


REAL = Roots()
