from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import OptimizerSpec, ScheduleSpec
from phone_agent.train.schedules import POLICIES, check, learning_rate, linear_scaling

HIGHEST = 0.4
OPTIMIZER = OptimizerSpec(learning_rate=HIGHEST)

schedules = st.builds(
    ScheduleSpec,
    policy=st.sampled_from(list(POLICIES)),
    warmup_steps=st.integers(0, 30),
    decay_steps=st.integers(1, 40),
    gamma=st.floats(0.0, 1.0),
    power=st.floats(0.5, 4.0),
    min_lr_ratio=st.floats(0.0, 1.0),
)


def curve(schedule: ScheduleSpec, steps: int) -> list[float]:
    return [learning_rate(OPTIMIZER, schedule, step, steps) for step in range(1, steps + 1)]


@given(schedules, st.integers(1, 100))
def test_warm_up_is_linear_and_then_the_rate_never_rises(schedule: ScheduleSpec, steps: int) -> None:
    rates = curve(schedule, steps)
    rise = rates[: max(schedule.warmup_steps - 1, 0)]
    assert rise == pytest.approx([HIGHEST * (step + 1) / schedule.warmup_steps for step in range(len(rise))])
    assert all(left >= right - 1e-12 for left, right in pairwise(rates[len(rise) :]))


@given(schedules, st.integers(1, 100))
def test_rate_stays_between_minimum_and_peak(schedule: ScheduleSpec, steps: int) -> None:
    after = curve(schedule, steps)[max(schedule.warmup_steps - 1, 0) :]
    floor = 0.0 if schedule.policy == "step" else schedule.min_lr_ratio
    assert all(floor * HIGHEST - 1e-12 <= each <= HIGHEST + 1e-12 for each in after)


@given(schedules, st.integers(1, 100))
def test_only_polynomial_and_cosine_have_a_minimum(schedule: ScheduleSpec, steps: int) -> None:
    if schedule.policy in {"constant", "step"}:
        assert curve(schedule, steps) == curve(replace(schedule, min_lr_ratio=0.0), steps)
    elif schedule.warmup_steps <= steps:
        assert learning_rate(OPTIMIZER, schedule, steps + 1, steps) == pytest.approx(schedule.min_lr_ratio * HIGHEST)


@given(schedules.filter(lambda schedule: schedule.policy != "step"), st.integers(40, 100))
def test_peak_is_reached_at_the_end_of_warm_up(schedule: ScheduleSpec, steps: int) -> None:
    assert curve(schedule, steps)[max(schedule.warmup_steps, 1) - 1] == pytest.approx(HIGHEST)


def test_policies_match_publications() -> None:
    """Caffe's step and poly, PyTorch's CosineAnnealingLR, all from iteration 0."""
    assert curve(ScheduleSpec("step", decay_steps=2, gamma=0.1), 5) == pytest.approx([0.4, 0.4, 0.04, 0.04, 0.004])
    assert curve(ScheduleSpec("polynomial", power=2.0), 4) == pytest.approx([0.4, 0.225, 0.1, 0.025])
    assert curve(ScheduleSpec("cosine"), 4) == pytest.approx([0.4, 0.34142136, 0.2, 0.05857864])


def test_linear_scaling() -> None:
    assert linear_scaling(0.1, 256, 8192) == pytest.approx(3.2)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [(ScheduleSpec("triangle"), "constant, step, polynomial, cosine"), (ScheduleSpec("step"), "number of steps")],
)
def test_invalid_schedules_are_rejected(schedule: ScheduleSpec, words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        check(schedule)
