"""Where a virtual phone sees the programs it borrows: this computer's, or those of a tree for another processor.

A phone with namespaces of its own has /usr/bin and /usr/sbin masked, as Android has none, and finds them again under
another directory. /usr/lib, /usr/share and /usr/include stay where they are.
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
    machine: str = platform.machine()  # what `uname -m` says on the phone, and so Termux's name for the architecture
    root: Path = Path("/")  # of the tree they are in

    @property
    def are_of_this_computer(self) -> bool:
        return self.root == Path("/")

    def find(self, name: str) -> str | None:
        """The path a phone uses for the program `name`, or None if there is none."""
        here = self.locate(name)
        return None if here is None else self._seen(here)

    def program(self, name: str) -> str:
        if found := self.find(name):
            return found
        raise ClusterctlError(f"there is no {name} in {self.root}{_BIN} or {self.root}{_SBIN}", remedy="make setup")

    def locate(self, name: str) -> Path | None:
        """Where the program is on this computer."""
        candidates = (self.root / directory / name for directory in (_BIN, _SBIN))
        return next((program for path in candidates if (program := self._resolved(path)).exists()), None)

    def _seen(self, path: Path) -> str:
        for here, there in ((self.root / _BIN, self.bin), (self.root / _SBIN, self.sbin)):
            if path.is_relative_to(here):
                return f"{there}/{path.relative_to(here)}"
        return f"/{path.relative_to(self.root)}"

    def _resolved(self, path: Path) -> Path:
        """The file behind links, which stay within the tree: /etc/alternatives points at places masked on a phone."""
        while path.is_symlink():
            target = path.readlink()
            start = self.root if target.is_absolute() else path.parent
            path = Path(os.path.normpath(f"{start}/{target}"))
        return path
