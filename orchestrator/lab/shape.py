"""What a person asks for with `clusterctl lab up`: how many phones, on how many switches, at which rates."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import UsageError

MAX_SWITCHES = 16
MAX_PHONES_PER_SWITCH = 200

_UNITS = {"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_SLOWEST, _FASTEST = 1_000_000, 100_000_000_000
_SIZES = {"m": 1 << 20, "g": 1 << 30}
_SMALLEST_DISK = 64 << 20


def bits_per_second(rate: str, flag: str = "--rate") -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", rate.strip().lower())
    if match is None:
        raise UsageError(f"{flag} {rate!r} is not a rate", remedy=f"{flag} 1gbit (or 100mbit, 2.5gbit)")
    bits = round(float(match[1]) * _UNITS[match[2]])
    if not _SLOWEST <= bits <= _FASTEST:
        raise UsageError(f"{flag} {rate} is outside 1mbit to 100gbit", remedy=f"{flag} 1gbit")
    return bits


def disk_bytes(size: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])", size.strip().lower())
    if match is None:
        raise UsageError(f"--disk {size!r} is not a size", remedy="--disk 1g (or 512m)")
    if (count := int(match[1]) * _SIZES[match[2]]) < _SMALLEST_DISK:
        raise UsageError(f"--disk {size} is too small for a bare Termux", remedy="--disk 64m or more")
    return count


class Arch(StrEnum):
    NATIVE = "native"  # phones run this computer's programs
    AARCH64 = "aarch64"  # phones run programs made for a phone's processor, which is emulated

    @property
    def machine(self) -> str:
        """What `uname -m` says on a phone."""
        return platform.machine() if self is Arch.NATIVE else self.value

    @property
    def is_emulated(self) -> bool:
        return self.machine != platform.machine()


def arch_named(name: str) -> Arch:
    try:
        return Arch(name)
    except ValueError:
        raise UsageError(f"--arch {name!r} is not known", remedy=f"--arch {' or --arch '.join(Arch)}") from None


@dataclass(frozen=True)
class Shape:
    phones: int
    switches: int = 1
    rate: str = "1gbit"
    uplink: str = "1gbit"
    disk: str = "1g"
    arch: Arch = Arch.NATIVE

    def check(self) -> None:
        """Raises UsageError for a shape that cannot be built."""
        if not 1 <= self.switches <= MAX_SWITCHES:
            raise UsageError(f"--switches {self.switches}: between 1 and {MAX_SWITCHES} switches can be made")
        most = MAX_PHONES_PER_SWITCH * self.switches
        if not 1 <= self.phones <= most:
            raise UsageError(f"--phones {self.phones}: between 1 and {most} fit on {self._switches}")
        if self.phones < self.switches:
            raise UsageError(f"--phones {self.phones} leaves some of {self._switches} empty")
        bits_per_second(self.rate)
        bits_per_second(self.uplink, "--uplink")
        disk_bytes(self.disk)

    def phones_per_switch(self) -> list[int]:
        """Evenly, the first switches taking what is left over."""
        each, left = divmod(self.phones, self.switches)
        return [each + (switch < left) for switch in range(self.switches)]

    @property
    def _switches(self) -> str:
        return f"{self.switches} switch" + ("es" if self.switches > 1 else "")

    def __str__(self) -> str:
        kind = "phone" if self.arch is Arch.NATIVE else f"{self.arch} phone"
        phones = f"{self.phones} {kind}" + ("s" if self.phones > 1 else "")
        return f"{phones} on {self._switches}, {self.rate} links, {self.uplink} uplinks, {self.disk} disks"
