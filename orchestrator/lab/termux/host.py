"""Where a virtual phone sees this computer's programs.

A phone with namespaces of its own has the host's /usr/bin and /usr/sbin masked, as Android has none, and finds
them again under another directory. /usr/lib, /usr/share and /usr/include stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ClusterctlError

_HOST_BIN = Path("/usr/bin")
_HOST_SBIN = Path("/usr/sbin")


@dataclass(frozen=True)
class HostPrograms:
    bin: str
    sbin: str

    def find(self, name: str) -> str | None:
        """The path a phone uses for the host's program `name`, or None if this computer has none."""
        here = locate(name)
        return None if here is None else self.seen(here)

    def program(self, name: str) -> str:
        if found := self.find(name):
            return found
        raise ClusterctlError(f"this computer has no {name} in /usr/bin or /usr/sbin", remedy="make setup")

    def seen(self, path: Path) -> str:
        """The path a phone uses for a host path. Links are resolved: /etc/alternatives points at masked places."""
        real = path.resolve()
        for here, there in ((_HOST_BIN, self.bin), (_HOST_SBIN, self.sbin)):
            if real.is_relative_to(here):
                return f"{there}/{real.relative_to(here)}"
        return str(real)


def locate(name: str) -> Path | None:
    """This computer's own program, where it is here."""
    candidates = (directory / name for directory in (_HOST_BIN, _HOST_SBIN))
    return next((program for program in candidates if program.exists()), None)
