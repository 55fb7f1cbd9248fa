"""Preconditions of a provision, checked before anything is changed on a phone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import DesiredState
from orchestrator.provision.fact_parsing import clock_offset
from orchestrator.provision.steps.packages import space_needed
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

_SPARE: Final = 50 << 20  # for logs, the agent, wheels
_CLOCK_TOLERANCE: Final = 2.0
_LOW_BATTERY_PERCENT: Final = 20


@dataclass(frozen=True)
class TimedFacts:
    facts: TermuxFacts
    window: tuple[float, float]  # when this computer sent the request and when it had the answer

    @property
    def clock_offset(self) -> float:
        return clock_offset(self.facts.epoch, self.window) or 0.0


def require_packages(facts: TermuxFacts, desired: DesiredState) -> None:
    """Fail a phone whose architecture has no packages or no agent. Phones of other architectures go on."""
    if facts.arch not in desired.repositories:
        raise PhoneError(
            f"there are no packages for its architecture, {facts.arch}",
            code=ErrorCode.UNSUPPORTED_PHONE,
            phase="preflight",
            remedy="see the notes of this run for the reason; use another repository (--upstream) or another phone",
        )
    if facts.arch not in desired.bundles:
        raise PhoneError(
            f"there is no agent for its architecture, {facts.arch}",
            code=ErrorCode.UNSUPPORTED_PHONE,
            phase="preflight",
            remedy="use a phone with a 64-bit processor and a 64-bit Android",
        )


def require_space(facts: TermuxFacts, desired: DesiredState) -> None:
    """Fail a phone whose storage would run full halfway."""
    needed = space_needed(facts, desired.repositories[facts.arch]) + _SPARE
    if facts.disk_free_kb is not None and facts.disk_free_kb * 1024 < needed:
        raise PhoneError(
            f"{facts.disk_free_kb / 1024:.0f} MB of storage free, {needed / (1 << 20):.0f} MB needed",
            code=ErrorCode.DISK_FULL,
            phase="preflight",
            remedy="free space on the phone (Settings, Device care, Storage), then run the command again",
        )


def warnings(phone: Phone, timed: TimedFacts, desired: DesiredState) -> tuple[str, ...]:
    facts = timed.facts
    found = (_clock(timed.clock_offset), _battery(facts), _storage(facts), _interface(phone, facts, desired))
    return tuple(warning for warning in found if warning)


def _clock(offset: float) -> str:
    if abs(offset) <= _CLOCK_TOLERANCE:
        return ""
    return f"clock is {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}: turn on automatic time on the phone"


def _battery(facts: TermuxFacts) -> str:
    battery = facts.battery
    if battery is None or battery.plugged is not False or battery.percent is None:
        return ""
    if battery.percent > _LOW_BATTERY_PERCENT:
        return ""
    return f"battery is at {battery.percent} % and not charging: check the power supply of its port"


def _storage(facts: TermuxFacts) -> str:
    if facts.disk_free_kb is None or facts.disk_free_kb * 1024 >= _SPARE:
        return ""
    return f"has only {facts.disk_free_kb / 1024:.0f} MB of storage left, too little for runs and logs"


def _interface(phone: Phone, facts: TermuxFacts, desired: DesiredState) -> str:
    wired = desired.cluster.interface
    used = facts.addresses.get(str(phone.address))
    if not facts.addresses or used == wired or desired.cluster.subnet.is_loopback:
        return ""
    if wired not in facts.addresses.values():
        return f"has no {wired}: the Ethernet adapter is missing or not recognized"
    return f"was reached over {used or 'another interface'}, not over {wired}"
