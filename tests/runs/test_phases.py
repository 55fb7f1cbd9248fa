"""Where the time of a recovery went."""

from __future__ import annotations

from orchestrator.runs import phases
from orchestrator.runs.phases import Phases


def test_each_phase_lasts_from_the_end_of_the_one_before() -> None:
    now = [100.0]
    course = Phases(lambda: now[0])
    now[0] = 108.0
    course.over(phases.NOTICING, at=103.0)  # seen then, understood only now
    course.over(phases.ASKING)
    now[0] = 110.0
    course.over(phases.STARTING)
    now[0] = 111.0
    course.over(phases.STARTING)  # a second attempt, as the first came to nothing
    assert course.seconds == {phases.NOTICING: 3.0, phases.ASKING: 5.0, phases.STARTING: 3.0}
    course.begin()
    assert course.seconds == {}


def test_a_sign_from_before_the_last_step_costs_nothing() -> None:
    now = [100.0]
    course = Phases(lambda: now[0])
    course.over(phases.NOTICING, at=90.0)
    assert course.seconds == {phases.NOTICING: 0.0}
