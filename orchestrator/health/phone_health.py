"""The state of a phone, and what needs attention, from its vitals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.fleet import Fleet
from orchestrator.fleet.result import Outcome, Outcomes, Status
from orchestrator.health.vitals import Vitals, collect_vitals
from orchestrator.inventory.model import Phone
from orchestrator.text import one_line
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import RunSummary

HOT_CPU_C = 80.0
HOT_BATTERY_C = 45.0  # lithium cells age fast above this, and Android stops charging
LOW_BATTERY_PERCENT = 30
MAX_CLOCK_OFFSET_S = 5.0
THROTTLED_RATIO = 0.7  # of the maximum frequency, under load
MIN_FREE_MEMORY_MB = 300
MIN_FREE_DISK_MB = 500
_NEW_PHONE = "not provisioned: host key not known yet"
ACTIVE_RUN = frozenset({"starting", "running"})


class PhoneState(StrEnum):
    RUNNING = "running"
    READY = "ready"
    UNFIT = "unfit"  # answers, but `launch` would refuse it
    HOT = "hot"
    FAILED = "failed"  # reachable, but something on it is broken
    UNPROVISIONED = "unprovisioned"
    OFF = "off"


@dataclass(frozen=True)
class PhoneHealth:
    phone: Phone
    state: PhoneState
    vitals: Vitals | None
    notes: tuple[str, ...] = ()
    remedy: str | None = None
    needs_provision: bool = False

    @property
    def noteworthy(self) -> bool:
        return bool(self.notes) or self.state not in {PhoneState.READY, PhoneState.RUNNING}

    @property
    def active_run(self) -> RunSummary | None:
        run = self.vitals.run if self.vitals else None
        return run if run is not None and run.state in ACTIVE_RUN else None


def collect_health(fleet: Fleet, on_done: Callable[[Any], None] | None = None) -> tuple[PhoneHealth, ...]:
    return evaluate_health(fleet.map(collect_vitals, on_done=on_done))


def evaluate_health(outcomes: Outcomes[Vitals]) -> tuple[PhoneHealth, ...]:
    common = most_common_release(outcome.value for outcome in outcomes if outcome.value is not None)
    return tuple(_evaluate(outcome, common) for outcome in outcomes)


def most_common_release(vitals: Iterable[Vitals]) -> str | None:
    """The agent release of most phones."""
    counts = Counter(each.agent_release for each in vitals if each.agent_release)
    return counts.most_common(1)[0][0] if counts else None


def _evaluate(outcome: Outcome[Vitals], common_release: str | None) -> PhoneHealth:
    if outcome.value is None:
        return _without_vitals(outcome)
    vitals = outcome.value
    provision = not vitals.provisioned or release_mismatch(vitals, common_release) is not None
    remedy = f"clusterctl provision --limit {outcome.phone.name}" if provision else None
    return PhoneHealth(outcome.phone, _state(vitals), vitals, tuple(_notes(vitals, common_release)), remedy, provision)


def _without_vitals(outcome: Outcome[Vitals]) -> PhoneHealth:
    """A phone without a pinned host key is new, not broken."""
    if outcome.code is ErrorCode.HOST_KEY_UNKNOWN:
        return PhoneHealth(
            outcome.phone, PhoneState.UNPROVISIONED, None, (_NEW_PHONE,), outcome.remedy, needs_provision=True
        )
    note = one_line(outcome.error or "no answer", 160)
    state = PhoneState.OFF if outcome.status in {Status.UNREACHABLE, Status.CANCELLED} else PhoneState.FAILED
    return PhoneHealth(outcome.phone, state, None, (note,), outcome.remedy)


def _state(vitals: Vitals) -> PhoneState:
    if vitals.agent_problem:
        return PhoneState.FAILED
    if not vitals.provisioned:
        return PhoneState.UNPROVISIONED
    if too_hot(vitals):
        return PhoneState.HOT
    return PhoneState.RUNNING if vitals.run and vitals.run.state in ACTIVE_RUN else PhoneState.READY


def too_hot(vitals: Vitals) -> str | None:
    battery = vitals.battery.temperature_c if vitals.battery else None
    if battery is not None and battery >= HOT_BATTERY_C:
        return f"battery at {battery:.0f} °C (limit {HOT_BATTERY_C:.0f} °C)"
    limit = HOT_BATTERY_C if vitals.temperature_source == "battery" else HOT_CPU_C
    if vitals.temperature_c is not None and vitals.temperature_c >= limit:
        return f"{vitals.temperature_c:.0f} °C (limit {limit:.0f} °C)"
    return None


def throttled(vitals: Vitals) -> str | None:
    """Only while it computes: an idle phone lowers its clock to save power."""
    current, maximum = vitals.frequency_mhz, vitals.frequency_max_mhz
    if not (current and maximum and vitals.run and vitals.run.state in ACTIVE_RUN):
        return None
    if current >= THROTTLED_RATIO * maximum:
        return None
    return f"throttled: clock at {100 * current / maximum:.0f}% of maximum"


def battery_low(vitals: Vitals) -> str | None:
    battery = vitals.battery
    if battery is None or battery.percent is None or battery.status != "DISCHARGING":
        return None
    return f"battery {battery.percent} % and discharging" if battery.percent < LOW_BATTERY_PERCENT else None


def clock_off(vitals: Vitals) -> str | None:
    offset = vitals.clock_offset_s
    if offset is None or abs(offset) <= MAX_CLOCK_OFFSET_S:
        return None
    return f"clock {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}"


def release_mismatch(vitals: Vitals, common: str | None) -> str | None:
    if vitals.agent_release is None or vitals.agent_release == common:
        return None
    return f"agent release {vitals.agent_release}, most phones have {common}"


def low_resources(vitals: Vitals) -> str | None:
    if vitals.disk_free_mb is not None and vitals.disk_free_mb < MIN_FREE_DISK_MB:
        return f"only {vitals.disk_free_mb} MB of disk free (needs {MIN_FREE_DISK_MB})"
    if vitals.memory_free_mb is not None and vitals.memory_free_mb < MIN_FREE_MEMORY_MB:
        return f"only {vitals.memory_free_mb} MB of memory free (needs {MIN_FREE_MEMORY_MB})"
    return None


def not_provisioned(vitals: Vitals) -> str | None:
    if vitals.agent_problem:
        return f"the agent does not work: {vitals.agent_problem}"
    return None if vitals.provisioned else "not provisioned"


def _notes(vitals: Vitals, common_release: str | None) -> list[str]:
    found = (
        not_provisioned(vitals),
        too_hot(vitals),
        throttled(vitals),
        battery_low(vitals),
        low_resources(vitals),
        release_mismatch(vitals, common_release),
        clock_off(vitals),
    )
    return [note for note in found if note]
