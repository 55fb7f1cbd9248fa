"""Configuration of a lab, as given to `clusterctl lab up`: number of phones and switches, link rates, disk size."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import UsageError

MAX_SWITCHES = 16
MAX_PHONES_PER_SWITCH = 200

_RATE_UNITS = {"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_MIN_RATE, _MAX_RATE = 1_000_000, 100_000_000_000
_SIZE_UNITS = {"m": 1 << 20, "g": 1 << 30}
_MIN_DISK = 64 << 20


def parse_rate(rate: str, flag: str = "--rate") -> int:
    """Bits per second."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", rate.strip().lower())
    if match is None:
        raise UsageError(f"{flag} {rate!r} is not a rate", remedy=f"{flag} 1gbit (or 100mbit, 2.5gbit)")
    bits = round(float(match[1]) * _RATE_UNITS[match[2]])
    if not _MIN_RATE <= bits <= _MAX_RATE:
        raise UsageError(f"{flag} {rate} is not between 1mbit and 100gbit", remedy=f"{flag} 1gbit")
    return bits


def parse_size(size: str) -> int:
    """Bytes."""
    match = re.fullmatch(r"(\d+)([mg])", size.strip().lower())
    if match is None:
        raise UsageError(f"--disk {size!r} is not a size", remedy="--disk 1g (or 512m)")
    if (count := int(match[1]) * _SIZE_UNITS[match[2]]) < _MIN_DISK:
        raise UsageError(f"--disk {size} is too small for a bare Termux", remedy="--disk 64m or more")
    return count


class Arch(StrEnum):
    NATIVE = "native"  # phones run the host's programs
    AARCH64 = "aarch64"  # phones run arm64 programs under emulation

    @property
    def machine(self) -> str:
        """The output of `uname -m` on a phone."""
        return platform.machine() if self is Arch.NATIVE else self.value

    @property
    def is_emulated(self) -> bool:
        return self.machine != platform.machine()


def parse_arch(name: str) -> Arch:
    try:
        return Arch(name)
    except ValueError:
        raise UsageError(f"--arch {name!r} is not supported", remedy=f"--arch {' or --arch '.join(Arch)}") from None


@dataclass(frozen=True)
class LabConfig:
    phones: int
    switches: int = 1
    rate: str = "1gbit"
    uplink: str = "1gbit"
    disk: str = "1g"
    arch: Arch = Arch.NATIVE

    def validate(self) -> None:
        """Raise UsageError if the lab cannot be built."""
        if not 1 <= self.switches <= MAX_SWITCHES:
            raise UsageError(f"--switches {self.switches} is not between 1 and {MAX_SWITCHES}")
        most = MAX_PHONES_PER_SWITCH * self.switches
        if not 1 <= self.phones <= most:
            raise UsageError(f"--phones {self.phones} is not between 1 and {most}, the limit for {self._switches}")
        if self.phones < self.switches:
            raise UsageError(f"--phones {self.phones} is not enough for {self._switches}: each needs a phone")
        parse_rate(self.rate)
        parse_rate(self.uplink, "--uplink")
        parse_size(self.disk)

    def phones_per_switch(self) -> list[int]:
        """Phones spread evenly. If the division leaves a remainder, the first switches get one phone more."""
        each, remainder = divmod(self.phones, self.switches)
        return [each + (switch < remainder) for switch in range(self.switches)]

    @property
    def _switches(self) -> str:
        return f"{self.switches} switch" + ("es" if self.switches > 1 else "")

    def __str__(self) -> str:
        kind = "phone" if self.arch is Arch.NATIVE else f"{self.arch} phone"
        phones = f"{self.phones} {kind}" + ("s" if self.phones > 1 else "")
        return f"{phones} on {self._switches}, {self.rate} links, {self.uplink} uplinks, {self.disk} disks"
