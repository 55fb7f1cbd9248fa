"""Where the time of a recovery went."""

from __future__ import annotations

from orchestrator.supervisor import recovery_timing
from orchestrator.supervisor.recovery_timing import Phases


def test_each_phase_lasts_from_the_end_of_the_one_before() -> None:
    now = [100.0]
    course = Phases(lambda: now[0])
    now[0] = 108.0
    course.over(recovery_timing.NOTICING, at=103.0)  # seen then, understood only now
    course.over(recovery_timing.ASKING)
    now[0] = 110.0
    course.over(recovery_timing.STARTING)
    now[0] = 111.0
    course.over(recovery_timing.STARTING)  # a second attempt, as the first came to nothing
    assert course.seconds == {recovery_timing.NOTICING: 3.0, recovery_timing.ASKING: 5.0, recovery_timing.STARTING: 3.0}
    course.begin()
    assert course.seconds == {}


def test_a_sign_from_before_the_last_step_costs_nothing() -> None:
    now = [100.0]
    course = Phases(lambda: now[0])
    course.over(recovery_timing.NOTICING, at=90.0)
    assert course.seconds == {recovery_timing.NOTICING: 0.0}
