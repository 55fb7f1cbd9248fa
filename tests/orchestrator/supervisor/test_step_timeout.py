"""When the next step is overdue."""

from __future__ import annotations

from orchestrator.supervisor.step_timeout import FIRST_STEP_S, MINIMUM_S, StepTimeout


def test_the_timeout_follows_the_step_times() -> None:
    timeout = StepTimeout(clock=lambda: 0.0)
    assert FIRST_STEP_S < timeout.limit_s < StepTimeout(2000).limit_s
    assert timeout.usual_step_s is None
    for seconds in (10.0, 10.5, 9.5, 10.0):
        timeout.record_step(seconds)
    assert 20 < timeout.limit_s < 40
    for _ in range(100):
        timeout.record_step(0.01)
    assert timeout.limit_s == MINIMUM_S


def test_a_probe_that_finds_nothing_doubles_the_timeout_until_the_next_step() -> None:
    now = 0.0
    timeout = StepTimeout(clock=lambda: now)
    timeout.record_step(10.0)
    limit = timeout.limit_s
    assert (timeout.expired, timeout.backed_off) == (False, False)
    now = limit + 1
    assert (timeout.expired, timeout.backed_off) == (True, False)
    timeout.back_off()
    assert (timeout.expired, timeout.backed_off, timeout.limit_s) == (False, True, 2 * limit)
    timeout.record_step(10.0)
    assert (timeout.backed_off, timeout.limit_s) == (False, limit)


def test_until_the_first_step_the_phones_are_probed_at_bounded_intervals() -> None:
    timeout = StepTimeout(2)
    for _ in range(10):
        timeout.back_off()
    assert timeout.limit_s < 5 * FIRST_STEP_S
