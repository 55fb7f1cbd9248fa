"""The path of Termux on a phone, and how files adapt to the different paths of loopback mode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from orchestrator.lab.termux.host import HostPrograms

TERMUX_PREFIX = PurePosixPath("/data/data/com.termux/files/usr")


@dataclass(frozen=True)
class TermuxLayout:
    """Adapts files so that they work on the phone.

    Packages always contain Termux's paths. Where a phone cannot have these paths (loopback mode), scripts read $PREFIX
    from the environment and run with the host's shell.
    """

    host: HostPrograms
    prefix: str

    @property
    def relocated(self) -> bool:
        return self.prefix != str(TERMUX_PREFIX)

    @property
    def site_packages(self) -> str:
        return f"lib/{self._python}/site-packages"

    def render(self, text: str, version: str = "") -> str:
        """Replace the @NAME@ placeholders in a text."""
        values = {**self._values, "VERSION": version}
        return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)

    def interpreter(self, name: str) -> str:
        """The interpreter path for a shebang line."""
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
        """The versioned name, such as python3.11."""
        return Path(self.host.program("python3")).name
