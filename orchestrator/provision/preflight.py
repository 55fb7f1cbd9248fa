"""What stands in the way, told before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.steps.packages import space_needed
from phone_agent.contract.errors import ErrorCode

_SPARE: Final = 50 << 20  # for logs, the agent, wheels
_CLOCK_TOLERANCE: Final = 2.0
_LOW_BATTERY: Final = 20.0


@dataclass(frozen=True)
class Asked:
    """The facts of a phone, and when the host asked for them."""

    facts: Facts
    sent: float
    received: float

    @property
    def clock_offset(self) -> float:
        """How far the phone's clock is ahead; 0 where the answer's travel explains the difference."""
        if self.facts.epoch < self.sent:
            return self.facts.epoch - self.sent
        return max(0.0, self.facts.epoch - self.received)


def require_packages(facts: Facts, want: Want) -> None:
    """An architecture that there are no packages or no agent for stops its own phones only."""
    if facts.arch not in want.repositories:
        raise PhoneError(
            f"there are no packages for its architecture, {facts.arch}",
            code=ErrorCode.UNSUPPORTED_PHONE,
            phase="preflight",
            remedy="the notes of this run say why; choose another repository with --upstream, or another phone",
        )
    if facts.arch not in want.bundles:
        raise PhoneError(
            f"there is no agent for its architecture, {facts.arch}",
            code=ErrorCode.UNSUPPORTED_PHONE,
            phase="preflight",
            remedy="phones need a 64-bit processor and a 64-bit Android; choose another phone",
        )


def require_space(facts: Facts, want: Want) -> None:
    """For a phone with work to do: half done is worse than not begun."""
    needed = space_needed(facts, want.repositories[facts.arch]) + _SPARE
    if facts.disk_free_kb is not None and facts.disk_free_kb * 1024 < needed:
        raise PhoneError(
            f"{facts.disk_free_kb / 1024:.0f} MB of storage are free, {needed / (1 << 20):.0f} MB are needed",
            code=ErrorCode.DISK_FULL,
            phase="preflight",
            remedy="free space on the phone (Settings, Device care, Storage), then run it again",
        )


def warnings(phone: Phone, asked: Asked, want: Want) -> tuple[str, ...]:
    found = (_clock(asked), _battery(asked.facts), _storage(asked.facts), _interface(phone, asked.facts, want))
    return tuple(warning for warning in found if warning)


def _clock(asked: Asked) -> str:
    offset = asked.clock_offset
    if abs(offset) <= _CLOCK_TOLERANCE:
        return ""
    return f"clock is {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}: set automatic time on the phone"


def _battery(facts: Facts) -> str:
    battery = facts.battery
    if battery is None or battery.plugged or battery.percentage > _LOW_BATTERY:
        return ""
    return f"battery is at {battery.percentage:.0f} % and nothing charges it: check the power of its port"


def _storage(facts: Facts) -> str:
    if facts.disk_free_kb is None or facts.disk_free_kb * 1024 >= _SPARE:
        return ""
    return f"has {facts.disk_free_kb / 1024:.0f} MB of storage left: runs and logs need more"


def _interface(phone: Phone, facts: Facts, want: Want) -> str:
    wired = want.cluster.interface
    used = facts.addresses.get(str(phone.address))
    if not facts.addresses or used == wired or want.cluster.subnet.is_loopback:
        return ""
    if wired not in facts.addresses.values():
        return f"has no {wired}: the Ethernet adapter is missing or not recognised"
    return f"was reached over {used or 'another interface'}, not over {wired}"
