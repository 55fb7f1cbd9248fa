"""What state a phone is in, and what about it deserves a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.fleet.result import Outcome, Outcomes, Status
from orchestrator.health.vitals import CurrentRun, Vitals, ask_vitals
from orchestrator.inventory.model import Phone
from orchestrator.text import one_line
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet

HOT_CPU_C = 80.0
HOT_BATTERY_C = 45.0  # lithium cells age fast above it, and Android stops charging
LOW_BATTERY_PERCENT = 30
CLOCK_OFF_S = 5.0
SLOW_CLOCK = 0.7  # of the highest frequency, while it computes
LITTLE_MEMORY_MB = 300
LITTLE_DISK_MB = 500
_UNMET = "not provisioned: host key not known yet"
ACTIVE_RUN = frozenset({"starting", "running"})


class State(StrEnum):
    RUNNING = "running"
    READY = "ready"
    HOT = "hot"
    FAILED = "failed"  # it answers, but something on it is broken
    UNPROVISIONED = "unprovisioned"
    OFF = "off"


@dataclass(frozen=True)
class PhoneHealth:
    phone: Phone
    state: State
    vitals: Vitals | None
    notes: tuple[str, ...] = ()
    remedy: str | None = None
    needs_provision: bool = False

    @property
    def noteworthy(self) -> bool:
        return bool(self.notes) or self.state not in {State.READY, State.RUNNING}

    @property
    def active_run(self) -> CurrentRun | None:
        run = self.vitals.run if self.vitals else None
        return run if run is not None and run.state in ACTIVE_RUN else None


def ask_all(fleet: Fleet, on_done: Callable[[Any], None] | None = None) -> tuple[PhoneHealth, ...]:
    return judge(fleet.map(ask_vitals, on_done=on_done))


def judge(outcomes: Outcomes[Vitals]) -> tuple[PhoneHealth, ...]:
    usual = usual_release(outcome.value for outcome in outcomes if outcome.value is not None)
    return tuple(_judge_one(outcome, usual) for outcome in outcomes)


def usual_release(vitals: Iterable[Vitals]) -> str | None:
    """The release most phones run: the others are the odd ones."""
    counts = Counter(each.agent_release for each in vitals if each.agent_release)
    return counts.most_common(1)[0][0] if counts else None


def _judge_one(outcome: Outcome[Vitals], usual: str | None) -> PhoneHealth:
    if outcome.value is None:
        return _silent(outcome)
    vitals = outcome.value
    provision = not vitals.provisioned or odd_release(vitals, usual) is not None
    remedy = f"clusterctl provision --limit {outcome.phone.name}" if provision else None
    return PhoneHealth(outcome.phone, _state(vitals), vitals, tuple(_notes(vitals, usual)), remedy, provision)


def _silent(outcome: Outcome[Vitals]) -> PhoneHealth:
    """No vitals. A phone never met before has no pinned key: that is a new phone, not a broken one."""
    if outcome.code is ErrorCode.HOST_KEY_UNKNOWN:
        return PhoneHealth(outcome.phone, State.UNPROVISIONED, None, (_UNMET,), outcome.remedy, needs_provision=True)
    note = one_line(outcome.error or "no answer", 160)
    state = State.OFF if outcome.status in {Status.UNREACHABLE, Status.CANCELLED} else State.FAILED
    return PhoneHealth(outcome.phone, state, None, (note,), outcome.remedy)


def _state(vitals: Vitals) -> State:
    if vitals.agent_problem:
        return State.FAILED
    if not vitals.provisioned:
        return State.UNPROVISIONED
    if too_hot(vitals):
        return State.HOT
    return State.RUNNING if vitals.run and vitals.run.state in ACTIVE_RUN else State.READY


def too_hot(vitals: Vitals) -> str | None:
    battery = vitals.battery.temperature_c if vitals.battery else None
    if battery is not None and battery >= HOT_BATTERY_C:
        return f"battery at {battery:.0f} °C (stop at {HOT_BATTERY_C:.0f})"
    limit = HOT_BATTERY_C if vitals.temperature_source == "battery" else HOT_CPU_C
    if vitals.temperature_c is not None and vitals.temperature_c >= limit:
        return f"{vitals.temperature_c:.0f} °C (stop at {limit:.0f})"
    return None


def throttled(vitals: Vitals) -> str | None:
    """An idle phone's clock is slow to save power."""
    now, most = vitals.frequency_mhz, vitals.frequency_max_mhz
    if not (now and most and vitals.run and vitals.run.state in ACTIVE_RUN) or now >= SLOW_CLOCK * most:
        return None
    return f"throttled: clock at {100 * now / most:.0f} % of maximum"


def battery_low(vitals: Vitals) -> str | None:
    battery = vitals.battery
    if battery is None or battery.percent is None or battery.status != "DISCHARGING":
        return None
    return f"battery {battery.percent} % and discharging" if battery.percent < LOW_BATTERY_PERCENT else None


def clock_off(vitals: Vitals) -> str | None:
    offset = vitals.clock_offset_s
    if offset is None or abs(offset) <= CLOCK_OFF_S:
        return None
    return f"clock {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}"


def odd_release(vitals: Vitals, usual: str | None) -> str | None:
    if vitals.agent_release is None or vitals.agent_release == usual:
        return None
    return f"agent release {vitals.agent_release} differs from the others' {usual}"


def short_of(vitals: Vitals) -> str | None:
    if vitals.disk_free_mb is not None and vitals.disk_free_mb < LITTLE_DISK_MB:
        return f"only {vitals.disk_free_mb} MB of disk free (needs {LITTLE_DISK_MB})"
    if vitals.memory_free_mb is not None and vitals.memory_free_mb < LITTLE_MEMORY_MB:
        return f"only {vitals.memory_free_mb} MB of memory free (needs {LITTLE_MEMORY_MB})"
    return None


def not_provisioned(vitals: Vitals) -> str | None:
    if vitals.agent_problem:
        return f"its agent does not answer: {vitals.agent_problem}"
    return None if vitals.provisioned else "not provisioned"


def _notes(vitals: Vitals, usual: str | None) -> list[str]:
    found = (
        not_provisioned(vitals),
        too_hot(vitals),
        throttled(vitals),
        battery_low(vitals),
        short_of(vitals),
        odd_release(vitals, usual),
        clock_off(vitals),
    )
    return [note for note in found if note]
