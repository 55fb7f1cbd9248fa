"""Location of the programs that a virtual phone uses: those of the host, or of an arm64 userland.

On a phone with namespaces /usr/bin and /usr/sbin are masked, because Android has neither. They are mounted elsewhere.
/usr/lib, /usr/share and /usr/include stay where they are.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ClusterctlError

_BIN = "usr/bin"
_SBIN = "usr/sbin"


@dataclass(frozen=True)
class HostPrograms:
    bin: str
    sbin: str
    machine: str = platform.machine()  # `uname -m` on the phone, which is also Termux's architecture name
    root: Path = Path("/")  # of the userland

    @property
    def is_native(self) -> bool:
        return self.root == Path("/")

    def find(self, name: str) -> str | None:
        """The path of a program as seen by the phone, or None if there is no such program."""
        here = self.locate(name)
        return None if here is None else self._path_on_phone(here)

    def program(self, name: str) -> str:
        if path := self.find(name):
            return path
        raise ClusterctlError(f"no program {name} in {self.root}{_BIN} or {self.root}{_SBIN}", remedy="make setup")

    def locate(self, name: str) -> Path | None:
        """The path of a program as seen by the host."""
        candidates = (self.root / directory / name for directory in (_BIN, _SBIN))
        return next((program for path in candidates if (program := self._resolved(path)).exists()), None)

    def _path_on_phone(self, path: Path) -> str:
        for here, there in ((self.root / _BIN, self.bin), (self.root / _SBIN, self.sbin)):
            if path.is_relative_to(here):
                return f"{there}/{path.relative_to(here)}"
        return f"/{path.relative_to(self.root)}"

    def _resolved(self, path: Path) -> Path:
        """Resolve symlinks within the userland, because those in /etc/alternatives point to paths masked on a phone."""
        while path.is_symlink():
            target = path.readlink()
            start = self.root if target.is_absolute() else path.parent
            path = Path(os.path.normpath(f"{start}/{target}"))
        return path
