"""The step timer: warm-up steps are not timed, and both limits hold."""

from __future__ import annotations

import time

from phone_agent.device.step_timer import time_steps


def test_warm_up_steps_are_not_timed() -> None:
    calls: list[int] = []
    assert len(time_steps(lambda: calls.append(1), 3, warm_up=2)) == 3
    assert len(calls) == 5


def test_steps_are_repeated_until_both_limits_hold() -> None:
    started = time.perf_counter()
    seconds = time_steps(lambda: time.sleep(0.01), 2, min_seconds=0.05)
    assert time.perf_counter() - started >= 0.05
    assert len(seconds) >= 2


def test_each_step_is_timed_by_the_given_clock() -> None:
    ticks = iter(range(100))
    assert time_steps(lambda: next(ticks), 2, warm_up=0, clock=lambda: float(next(ticks))) == [2.0, 2.0]
