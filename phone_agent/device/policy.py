"""Thermal and battery policy: warn, reduce the work of a phone, pause it, and restore it. Pure.

Hysteresis: a level starts at its limit and ends well below it. Work is reduced and restored one step at a time, because
temperature lags work by minutes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from phone_agent.device.condition import UNKNOWN, Cause, Condition, Level

WORK_FRACTIONS = (1.0, 0.7, 0.5, 0.35, 0.25)
INDEX_AFTER_PAUSE = 2  # in WORK_FRACTIONS
STEP_INTERVAL_S = 60.0
DRAINED_PERCENT = 3  # below the maximum while plugged in


@dataclass(frozen=True)
class Limits:
    """The limit at which each level starts, and how far below its limit a level ends."""

    warn: float
    reduce: float
    pause: float
    hysteresis: float

    def level(self, value: float, previous: Level) -> Level:
        """Uncondition values count as good."""
        if math.isnan(value):
            return Level.GOOD
        reached, retained = self._reached(value), self._reached(value + self.hysteresis)
        return reached if reached > previous else min(previous, retained)

    def _reached(self, value: float) -> Level:
        return Level(sum(value >= limit for limit in (self.warn, self.reduce, self.pause)))


LIMITS: Mapping[Cause, Limits] = {
    Cause.PROCESSOR: Limits(80, 88, 95, hysteresis=5),
    Cause.BATTERY: Limits(40, 43, 45, hysteresis=2),  # lithium cells age fast above 45 °C, and Android stops charging
    Cause.CHARGE: Limits(70, 85, 95, hysteresis=2),  # missing percent of a discharging battery
}


@dataclass(frozen=True)
class Readings:
    """Raw sensor values. `processor_c` is None if only the battery has a thermometer."""

    processor_c: float | None = None
    battery: Mapping[str, Any] | None = None
    frequency_mhz: float | None = None
    frequency_max_mhz: float | None = None


class Policy:
    """Stateful, with the time passed in."""

    def __init__(self) -> None:
        self._levels = dict.fromkeys(LIMITS, Level.GOOD)
        self._index = 0
        self._changed = -math.inf  # when the index last changed
        self._max_percent = -math.inf  # while plugged in
        self._drains = False

    def evaluate(self, readings: Readings, now: float) -> Condition:
        condition = _condition(readings)
        status = (readings.battery or {}).get("status")
        discharging = status == "DISCHARGING" or condition.plugged == 0
        values = {
            Cause.PROCESSOR: _number(readings.processor_c),
            Cause.BATTERY: condition.battery_c,
            Cause.CHARGE: 100 - condition.battery_percent if discharging else UNKNOWN,
        }
        self._levels = {cause: LIMITS[cause].level(values[cause], self._levels[cause]) for cause in LIMITS}
        cause = max(self._levels, key=lambda each: self._levels[each])
        level = self._levels[cause]
        return replace(
            condition,
            drains=float(self._is_draining(condition)),
            level=level,
            cause=cause if level else Cause.NONE,
            work_fraction=self._work_fraction(level, now),
        )

    def _work_fraction(self, level: Level, now: float) -> float:
        if level == Level.PAUSE:
            self._index, self._changed = INDEX_AFTER_PAUSE, now
            return 0.0
        if now - self._changed >= STEP_INTERVAL_S:
            index = self._index + (1 if level == Level.REDUCE else -1)
            index = min(max(index, 0), len(WORK_FRACTIONS) - 1)
            if index != self._index:
                self._index, self._changed = index, now
        return WORK_FRACTIONS[self._index]

    def _is_draining(self, condition: Condition) -> bool:
        """A phone may report that it is charging while the hub supplies less than it draws."""
        if condition.plugged != 1:
            self._max_percent, self._drains = -math.inf, False
        elif not math.isnan(condition.battery_percent):
            self._max_percent = max(self._max_percent, condition.battery_percent)
            lost = self._max_percent - condition.battery_percent
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
