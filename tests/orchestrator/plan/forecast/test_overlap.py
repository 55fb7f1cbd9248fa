"""Simulated steps, on cases that can be calculated by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan.forecast.overlap import StepTiming, overlapped_step_s, sequential_step_s
from phone_agent.train.bucket_order import BucketTimes, order_chunks, split_buckets

FLOATS = 1000


def timing(
    compute: float, ready: list[float], needed: list[float], sums: list[float], updates: list[float]
) -> StepTiming:
    return StepTiming(compute, ready, needed, updates, sums)


def step_s(each: StepTiming) -> float:
    parts = [slice(number * FLOATS, (number + 1) * FLOATS) for number in range(len(each.ready))]
    return overlapped_step_s(
        each, order_chunks(split_buckets(parts, 1 << 30), BucketTimes(each.ready, each.needed, each.allreduce_s))
    )


def test_communication_that_ends_in_time_costs_nothing() -> None:
    assert step_s(timing(10.0, [6.0], [2.0], [3.0], [1.0])) == pytest.approx(10.0)


def test_part_that_is_ready_last_and_needed_first_is_waited_for() -> None:
    """The last part is ready when the step ends, and the next forward begins with it: nothing hides it."""
    assert step_s(timing(10.0, [6.0, 10.0], [5.0, 0.0], [3.0, 0.5], [0.0, 0.25])) == pytest.approx(10.75)


def test_busy_link_limits_the_step() -> None:
    """The link is idle only until backward has completed the first part."""
    assert step_s(timing(1.0, [0.5, 1.0], [0.4, 0.0], [3.0, 2.0], [0.0, 0.0])) == pytest.approx(0.5 + 3.0 + 2.0)


def test_times_add_up_without_overlap() -> None:
    assert sequential_step_s(timing(10.0, [6.0, 10.0], [5.0, 0.0], [3.0, 0.5], [0.0, 0.25])) == pytest.approx(13.75)


@given(
    st.lists(st.tuples(*[st.floats(0.0, 1.0)] * 2, *[st.floats(0.0, 2.0)] * 2), min_size=1, max_size=8),
    st.floats(1.0, 3.0),
)
def test_step_takes_at_least_either_and_at_most_both(
    parts: list[tuple[float, float, float, float]], compute: float
) -> None:
    needed = sorted((compute / 2 * part[0] for part in parts), reverse=True)
    ready = sorted(compute / 2 * (1 + part[1]) for part in parts)
    each = timing(compute, ready, needed, [part[2] for part in parts], [part[3] for part in parts])
    assert step_s(each) >= max(each.compute_s, each.communication_s) - 1e-9
    assert step_s(each) <= sequential_step_s(each) + 1e-9
