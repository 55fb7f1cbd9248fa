"""What a step takes beside its communication, on cases that can be counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan.forecast.overlap import Work, beside, one_after_the_other
from phone_agent.train.bucket_order import Times, arrange, pieces

FLOATS = 1000


def work(compute: float, ready: list[float], needed: list[float], sums: list[float], updates: list[float]) -> Work:
    return Work(compute, ready, needed, updates, sums)


def step_s(each: Work) -> float:
    parts = [slice(number * FLOATS, (number + 1) * FLOATS) for number in range(len(each.ready))]
    return beside(each, arrange(pieces(parts, 1 << 30), Times(each.ready, each.needed, each.sums)))


def test_what_ends_before_it_is_needed_costs_nothing() -> None:
    assert step_s(work(10.0, [6.0], [2.0], [3.0], [1.0])) == pytest.approx(10.0)


def test_what_is_ready_last_and_needed_first_is_waited_for() -> None:
    """The last part is ready with the step, and the next forward begins with it: nothing hides its way."""
    assert step_s(work(10.0, [6.0, 10.0], [5.0, 0.0], [3.0, 0.5], [0.0, 0.25])) == pytest.approx(10.75)


def test_a_line_that_is_busy_longer_than_computing_sets_the_pace() -> None:
    """It rests only until backward has completed the first part."""
    assert step_s(work(1.0, [0.5, 1.0], [0.4, 0.0], [3.0, 2.0], [0.0, 0.0])) == pytest.approx(0.5 + 3.0 + 2.0)


def test_without_overlap_all_adds_up() -> None:
    assert one_after_the_other(work(10.0, [6.0, 10.0], [5.0, 0.0], [3.0, 0.5], [0.0, 0.25])) == pytest.approx(13.75)


@given(
    st.lists(st.tuples(*[st.floats(0.0, 1.0)] * 2, *[st.floats(0.0, 2.0)] * 2), min_size=1, max_size=8),
    st.floats(1.0, 3.0),
)
def test_a_step_takes_no_less_than_either_and_no_more_than_both(
    parts: list[tuple[float, float, float, float]], compute: float
) -> None:
    needed = sorted((compute / 2 * part[0] for part in parts), reverse=True)
    ready = sorted(compute / 2 * (1 + part[1]) for part in parts)
    each = work(compute, ready, needed, [part[2] for part in parts], [part[3] for part in parts])
    assert step_s(each) >= max(each.compute_s, each.communication_s) - 1e-9
    assert step_s(each) <= one_after_the_other(each) + 1e-9
