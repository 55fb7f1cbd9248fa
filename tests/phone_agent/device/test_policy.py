"""Thermal and battery policy: levels, causes and work fractions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from phone_agent.device.condition import Cause, Condition, Level
from phone_agent.device.policy import STEP_INTERVAL_S, WORK_FRACTIONS, Policy, Readings


def levels(policy: Policy, temperatures: list[float]) -> list[float]:
    return [policy.evaluate(Readings(celsius), 0.0).level for celsius in temperatures]


def test_levels_have_hysteresis() -> None:
    found = levels(Policy(), [60, 79, 80, 76, 75, 74, 88, 84, 83, 82, 95, 91, 89, 70])
    assert found == [0, 0, 1, 1, 1, 0, 2, 2, 2, 1, 3, 3, 2, 0]


def test_work_is_reduced_and_restored_step_by_step() -> None:
    policy = Policy()
    hot, cool = Readings(90), Readings(60)
    fractions = [policy.evaluate(hot, step * STEP_INTERVAL_S).work_fraction for step in range(4)]
    assert fractions == [*WORK_FRACTIONS[1:]]
    assert policy.evaluate(cool, 3 * STEP_INTERVAL_S + 1).work_fraction == WORK_FRACTIONS[-1], (
        "too soon after the last step"
    )
    back = [policy.evaluate(cool, (4 + step) * STEP_INTERVAL_S).work_fraction for step in range(6)]
    assert back == [*reversed(WORK_FRACTIONS[:-1]), 1.0, 1.0]


def test_a_phone_pauses_at_the_limit_and_resumes_with_half_its_work() -> None:
    policy = Policy()
    assert policy.evaluate(Readings(96), 0).work_fraction == 0
    assert policy.evaluate(Readings(92), 100).work_fraction == 0, "not yet cool enough"
    assert policy.evaluate(Readings(80), 101).work_fraction == 0.5
    assert policy.evaluate(Readings(70), 102).work_fraction == 0.5
    assert policy.evaluate(Readings(70), 101 + STEP_INTERVAL_S).work_fraction == 0.7


BATTERY = {"percentage": 80, "temperature": 30.0, "plugged": "PLUGGED_AC", "status": "CHARGING"}


@pytest.mark.parametrize(
    ("battery", "level", "cause", "reason"),
    [
        ({}, Level.GOOD, Cause.NONE, "nothing"),
        ({"temperature": 43.5}, Level.REDUCE, Cause.BATTERY, "battery at 44 °C"),
        ({"temperature": 45.0}, Level.PAUSE, Cause.BATTERY, "battery at 45 °C"),
        ({"percentage": 4}, Level.GOOD, Cause.NONE, "nothing"),
        ({"percentage": 12, "status": "DISCHARGING"}, Level.REDUCE, Cause.CHARGE, "battery at 12 % and discharging"),
        ({"percentage": 3, "plugged": "UNPLUGGED"}, Level.PAUSE, Cause.CHARGE, "battery at 3 % and discharging"),
    ],
)
def test_battery_levels(battery: dict[str, Any], level: Level, cause: Cause, reason: str) -> None:
    found = Policy().evaluate(Readings(50.0, {**BATTERY, **battery}), 0)
    assert (found.level, found.cause, found.reason()) == (level, cause, reason)


def test_discharging_while_plugged_in_is_detected_despite_the_status() -> None:
    policy = Policy()
    percents = [80, 81, 79, 78, 79, 80, 81, 80]
    drains = [policy.evaluate(Readings(battery={**BATTERY, "percentage": each}), 0).drains for each in percents]
    assert drains == [0, 0, 0, 1, 1, 1, 0, 0]
    unplugged = {**BATTERY, "percentage": 20, "plugged": "UNPLUGGED"}
    assert policy.evaluate(Readings(battery=unplugged), 0).drains == 0


def test_a_phone_without_readings_is_good() -> None:
    found = Policy().evaluate(Readings(), 0)
    assert (found.level, found.work_fraction, found.throttled) == (Level.GOOD, 1.0, False)
    assert found.as_json()["temperature_c"] is None
    assert found.as_json()["level"] == "good"


def test_invalid_readings_are_unknown() -> None:
    found = Policy().evaluate(Readings(math.inf, {"temperature": "warm", "percentage": None, "plugged": 3}), 0)
    assert math.isnan(found.temperature_c)
    assert math.isnan(found.plugged)


def test_a_low_clock_ratio_is_throttling() -> None:
    assert Condition(frequency_mhz=940, frequency_max_mhz=2841).throttled
    assert not Condition(frequency_mhz=2400, frequency_max_mhz=2841).throttled
    assert Condition(frequency_mhz=940, frequency_max_mhz=2841).describe_clock() == "clock at 33% of maximum"
    assert Condition(frequency_mhz=940, frequency_max_mhz=0).clock_ratio is None
