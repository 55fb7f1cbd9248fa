"""What heat and charge mean for a phone's work: warn, give it less, let it rest, and back again. Pure.

A level is reached at once and left only well below it; its work is eased by one notch at a time, and handed back the
same way: heat follows work by minutes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from phone_agent.device.condition import UNKNOWN, Cause, Condition, Level

NOTCHES = (1.0, 0.7, 0.5, 0.35, 0.25)  # of its work
AFTER_REST = 2  # the notch at which a phone comes back from a pause
NOTCH_S = 60.0
DRAINED_PERCENT = 3  # below the most it had while plugged in


@dataclass(frozen=True)
class Limits:
    """Where each level begins, and how far below that it ends."""

    warn: float
    reduce: float
    pause: float
    back: float

    def level(self, value: float, before: Level) -> Level:
        """Unknown values mean nothing."""
        if math.isnan(value):
            return Level.GOOD
        reached, kept = self._reached(value), self._reached(value + self.back)
        return reached if reached > before else min(before, kept)

    def _reached(self, value: float) -> Level:
        return Level(sum(value >= limit for limit in (self.warn, self.reduce, self.pause)))


LIMITS: Mapping[Cause, Limits] = {
    Cause.PROCESSOR: Limits(80, 88, 95, back=5),
    Cause.BATTERY: Limits(40, 43, 45, back=2),  # lithium cells age fast above 45, and Android stops charging
    Cause.CHARGE: Limits(70, 85, 95, back=2),  # of what is missing in a battery that discharges
}


@dataclass(frozen=True)
class Readings:
    """As they come from the phone. `processor_c` only where it is not the battery's."""

    processor_c: float | None = None
    battery: Mapping[str, Any] | None = None
    frequency_mhz: float | None = None
    frequency_max_mhz: float | None = None


class Policy:
    """Remembers what went before, by the clock it is told."""

    def __init__(self) -> None:
        self._levels = dict.fromkeys(LIMITS, Level.GOOD)
        self._notch = 0
        self._turned = -math.inf  # when the notch last changed
        self._most_percent = -math.inf  # while plugged in
        self._drains = False

    def judge(self, readings: Readings, now: float) -> Condition:
        known = _condition(readings)
        status = (readings.battery or {}).get("status")
        discharging = status == "DISCHARGING" or known.plugged == 0
        values = {
            Cause.PROCESSOR: _number(readings.processor_c),
            Cause.BATTERY: known.battery_c,
            Cause.CHARGE: 100 - known.battery_percent if discharging else UNKNOWN,
        }
        self._levels = {cause: LIMITS[cause].level(values[cause], self._levels[cause]) for cause in LIMITS}
        cause = max(self._levels, key=lambda each: self._levels[each])
        level = self._levels[cause]
        return replace(
            known,
            drains=float(self._drained(known)),
            level=level,
            cause=cause if level else Cause.NONE,
            ease=self._ease(level, now),
        )

    def _ease(self, level: Level, now: float) -> float:
        if level == Level.PAUSE:
            self._notch, self._turned = AFTER_REST, now
            return 0.0
        if now - self._turned >= NOTCH_S:
            turned = self._notch + (1 if level == Level.REDUCE else -1)
            turned = min(max(turned, 0), len(NOTCHES) - 1)
            if turned != self._notch:
                self._notch, self._turned = turned, now
        return NOTCHES[self._notch]

    def _drained(self, known: Condition) -> bool:
        """A phone may say that it is charging while the hub gives less than it takes."""
        if known.plugged != 1:
            self._most_percent, self._drains = -math.inf, False
        elif not math.isnan(known.battery_percent):
            self._most_percent = max(self._most_percent, known.battery_percent)
            lost = self._most_percent - known.battery_percent
            self._drains = lost >= DRAINED_PERCENT or (self._drains and lost > 0)
        return self._drains


def _condition(readings: Readings) -> Condition:
    battery = readings.battery or {}
    plugged = battery.get("plugged")
    battery_c = _number(battery.get("temperature"))
    processor_c = _number(readings.processor_c)
    return Condition(
        temperature_c=battery_c if math.isnan(processor_c) else processor_c,
        battery_c=battery_c,
        battery_percent=_number(battery.get("percentage")),
        plugged=float(plugged != "UNPLUGGED") if isinstance(plugged, str) else UNKNOWN,
        frequency_mhz=_number(readings.frequency_mhz),
        frequency_max_mhz=_number(readings.frequency_max_mhz),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else UNKNOWN
