"""Where Termux lives on a phone, and how a phone's tree deviates from it in the lab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from orchestrator.lab.termux.host import HostPrograms

TERMUX_PREFIX = PurePosixPath("/data/data/com.termux/files/usr")


@dataclass(frozen=True)
class Layout:
    """How files must be written so that they work on the phone.

    Packages always carry Termux's paths. Where a phone cannot have them (no mount namespace of its own), scripts
    learn $PREFIX from the environment and are started by the host's own shell.
    """

    host: HostPrograms
    prefix: str

    @property
    def relocated(self) -> bool:
        return self.prefix != str(TERMUX_PREFIX)

    @property
    def site_packages(self) -> str:
        return f"lib/{self._python}/site-packages"

    def fill(self, text: str, version: str = "") -> str:
        """`text` with its @NAMES@ replaced."""
        values = {**self._values, "VERSION": version}
        return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)

    def interpreter(self, name: str) -> str:
        """What a script's first line names."""
        return self.host.program(name) if self.relocated else f"{self.prefix}/bin/{name}"

    @cached_property
    def _values(self) -> dict[str, str]:
        return {
            "PREFIX": str(TERMUX_PREFIX),
            "SH": self.interpreter("sh"),
            "BASH": self.interpreter("bash"),
            "HOST_BIN": self.host.bin,
            "SSHD": self.host.program("sshd"),
            "PYTHON": self._python,
            "TRIPLET": f"{self.host.machine}-linux-gnu",
        }

    @property
    def _python(self) -> str:
        """The versioned name: python3.11."""
        return Path(self.host.program("python3")).name
