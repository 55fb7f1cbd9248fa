"""What a phone tells the others of itself with every step: numbers only, so that it travels with what it measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

UNKNOWN = math.nan
SLOW_CLOCK = 0.7  # of the highest: below it, a phone that computes is being throttled


class Level(IntEnum):
    """What its condition asks for, by urgency."""

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
    """Not a number: unknown. `ease`: how much of its work the phone should be given, 1 to 0."""

    temperature_c: float = UNKNOWN  # of the processor, or what comes nearest to it
    battery_c: float = UNKNOWN
    battery_percent: float = UNKNOWN
    plugged: float = UNKNOWN  # 1 or 0
    drains: float = 0.0  # 1: it is plugged in, and loses charge all the same
    frequency_mhz: float = UNKNOWN
    frequency_max_mhz: float = UNKNOWN
    level: float = Level.GOOD
    cause: float = Cause.NONE
    ease: float = 1.0

    @property
    def clock(self) -> float | None:
        """Of the highest frequency, 0 to 1."""
        share = self.frequency_mhz / self.frequency_max_mhz if self.frequency_max_mhz else UNKNOWN
        return share if math.isfinite(share) else None

    @property
    def throttled(self) -> bool:
        return self.clock is not None and self.clock < SLOW_CLOCK

    def clock_words(self) -> str:
        return "clock unknown" if self.clock is None else f"clock at {100 * self.clock:.0f} % of its highest"

    def figures(self) -> dict[str, Any]:
        """As an event tells it: what is unknown is null."""
        whole: dict[str, Callable[[float], Any]] = {"plugged": bool, "drains": bool, "level": _word, "cause": _cause}
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: None if math.isnan(value) else whole.get(name, float)(value) for name, value in numbers.items()}

    def reason(self) -> str:
        """Why its level is what it is."""
        match Cause(round(self.cause)):
            case Cause.PROCESSOR:
                return f"processor at {self.temperature_c:.0f} °C"
            case Cause.BATTERY:
                return f"battery at {self.battery_c:.0f} °C"
            case Cause.CHARGE:
                return f"battery at {self.battery_percent:.0f} % and discharging"
            case Cause.NONE:
                return "nothing"


def _word(level: float) -> str:
    return Level(round(level)).name.lower()


def _cause(cause: float) -> str:
    return Cause(round(cause)).name.lower()
