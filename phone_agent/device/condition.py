"""The condition that a phone reports with every step. Numbers only, because it is sent along with the step times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

UNKNOWN = math.nan
THROTTLED_CLOCK = 0.7  # of the maximum frequency: below it, a computing phone is throttled


class Level(IntEnum):
    """What the condition requires, by urgency."""

    GOOD = 0
    WARN = 1
    REDUCE = 2
    PAUSE = 3


class Cause(IntEnum):
    NONE = 0
    PROCESSOR = 1
    BATTERY = 2
    CHARGE = 3


@dataclass(frozen=True)
class Condition:
    """NaN means unknown. `work_fraction`: the fraction of its usual work that the phone should get, 0 to 1."""

    temperature_c: float = UNKNOWN  # of the processor, else of the battery
    battery_c: float = UNKNOWN
    battery_percent: float = UNKNOWN
    plugged: float = UNKNOWN  # 1 or 0
    drains: float = 0.0  # 1: plugged in, but discharging
    frequency_mhz: float = UNKNOWN
    frequency_max_mhz: float = UNKNOWN
    level: float = Level.GOOD
    cause: float = Cause.NONE
    work_fraction: float = 1.0

    @property
    def clock_ratio(self) -> float | None:
        """Current over maximum frequency, 0 to 1."""
        ratio = self.frequency_mhz / self.frequency_max_mhz if self.frequency_max_mhz else UNKNOWN
        return ratio if math.isfinite(ratio) else None

    @property
    def throttled(self) -> bool:
        return self.clock_ratio is not None and self.clock_ratio < THROTTLED_CLOCK

    def describe_clock(self) -> str:
        return "clock unknown" if self.clock_ratio is None else f"clock at {100 * self.clock_ratio:.0f}% of maximum"

    def as_json(self) -> dict[str, Any]:
        """For an event; unknown values are null."""
        convert: dict[str, Callable[[float], Any]] = {
            "plugged": bool,
            "drains": bool,
            "level": _level_name,
            "cause": _cause_name,
        }
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: None if math.isnan(value) else convert.get(name, float)(value) for name, value in values.items()}

    def reason(self) -> str:
        """The reason for the level."""
        match Cause(round(self.cause)):
            case Cause.PROCESSOR:
                return f"processor at {self.temperature_c:.0f} °C"
            case Cause.BATTERY:
                return f"battery at {self.battery_c:.0f} °C"
            case Cause.CHARGE:
                return f"battery at {self.battery_percent:.0f} % and discharging"
            case Cause.NONE:
                return "nothing"


def _level_name(level: float) -> str:
    return Level(round(level)).name.lower()


def _cause_name(cause: float) -> str:
    return Cause(round(cause)).name.lower()
