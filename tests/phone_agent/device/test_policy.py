from __future__ import annotations

import math
from typing import Any

import pytest

from phone_agent.device.condition import Cause, Condition, Level
from phone_agent.device.policy import NOTCH_S, NOTCHES, Policy, Readings


def levels(policy: Policy, temperatures: list[float]) -> list[float]:
    return [policy.judge(Readings(celsius), 0.0).level for celsius in temperatures]


def test_a_level_is_reached_at_once_and_left_well_below() -> None:
    found = levels(Policy(), [60, 79, 80, 76, 75, 74, 88, 84, 83, 82, 95, 91, 89, 70])
    assert found == [0, 0, 1, 1, 1, 0, 2, 2, 2, 1, 3, 3, 2, 0]


def test_work_is_eased_a_notch_at_a_time_and_handed_back() -> None:
    policy = Policy()
    hot, cool = Readings(90), Readings(60)
    eases = [policy.judge(hot, step * NOTCH_S).ease for step in range(4)]
    assert eases == [*NOTCHES[1:]]
    assert policy.judge(cool, 3 * NOTCH_S + 1).ease == NOTCHES[-1], "the last notch is not old enough"
    back = [policy.judge(cool, (4 + step) * NOTCH_S).ease for step in range(6)]
    assert back == [*reversed(NOTCHES[:-1]), 1.0, 1.0]


def test_at_the_limit_a_phone_rests_and_comes_back_with_half() -> None:
    policy = Policy()
    assert policy.judge(Readings(96), 0).ease == 0
    assert policy.judge(Readings(92), 100).ease == 0, "not yet cool enough"
    assert policy.judge(Readings(80), 101).ease == 0.5
    assert policy.judge(Readings(70), 102).ease == 0.5
    assert policy.judge(Readings(70), 101 + NOTCH_S).ease == 0.7


BATTERY = {"percentage": 80, "temperature": 30.0, "plugged": "PLUGGED_AC", "status": "CHARGING"}


@pytest.mark.parametrize(
    ("battery", "level", "cause", "words"),
    [
        ({}, Level.GOOD, Cause.NONE, "nothing"),
        ({"temperature": 43.5}, Level.REDUCE, Cause.BATTERY, "battery at 44 °C"),
        ({"temperature": 45.0}, Level.PAUSE, Cause.BATTERY, "battery at 45 °C"),
        ({"percentage": 4}, Level.GOOD, Cause.NONE, "nothing"),
        ({"percentage": 12, "status": "DISCHARGING"}, Level.REDUCE, Cause.CHARGE, "battery at 12 % and discharging"),
        ({"percentage": 3, "plugged": "UNPLUGGED"}, Level.PAUSE, Cause.CHARGE, "battery at 3 % and discharging"),
    ],
)
def test_the_battery_counts_too(battery: dict[str, Any], level: Level, cause: Cause, words: str) -> None:
    found = Policy().judge(Readings(50.0, {**BATTERY, **battery}), 0)
    assert (found.level, found.cause, found.reason()) == (level, cause, words)


def test_losing_charge_while_plugged_in_is_noticed_whatever_the_status_says() -> None:
    policy = Policy()
    percents = [80, 81, 79, 78, 79, 80, 81, 80]
    drains = [policy.judge(Readings(battery={**BATTERY, "percentage": each}), 0).drains for each in percents]
    assert drains == [0, 0, 0, 1, 1, 1, 0, 0]
    unplugged = {**BATTERY, "percentage": 20, "plugged": "UNPLUGGED"}
    assert policy.judge(Readings(battery=unplugged), 0).drains == 0


def test_a_phone_that_shows_nothing_is_taken_to_be_well() -> None:
    found = Policy().judge(Readings(), 0)
    assert (found.level, found.ease, found.throttled) == (Level.GOOD, 1.0, False)
    assert found.figures()["temperature_c"] is None
    assert found.figures()["level"] == "good"


def test_odd_answers_are_unknown() -> None:
    found = Policy().judge(Readings(math.inf, {"temperature": "warm", "percentage": None, "plugged": 3}), 0)
    assert math.isnan(found.temperature_c)
    assert math.isnan(found.plugged)


def test_a_slow_clock_is_throttling() -> None:
    assert Condition(frequency_mhz=940, frequency_max_mhz=2841).throttled
    assert not Condition(frequency_mhz=2400, frequency_max_mhz=2841).throttled
    assert Condition(frequency_mhz=940, frequency_max_mhz=2841).clock_words() == "clock at 33 % of its highest"
    assert Condition(frequency_mhz=940, frequency_max_mhz=0).clock is None
