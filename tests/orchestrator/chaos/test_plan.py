"""The plan of chaos: the same for the same seed, fair, and within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from orchestrator.chaos.catalogue import BY_NAME, CATALOGUE, TWO_AT_ONCE, Target
from orchestrator.chaos.plan import MOST_BLOWS, RunPlan, endless_plan

STEPS = 120


def planned(seed: int, blows: int, phones: range = range(4, 9)) -> list[RunPlan]:
    """Runs with so many blows."""
    return first_blows(endless_plan(seed, phones, STEPS), blows)


def first_blows(plan: Iterator[RunPlan], most: int) -> list[RunPlan]:
    runs: list[RunPlan] = []
    while (left := most - sum(len(run.blows) for run in runs)) > 0:
        runs.append(next(plan).at_most(left))
    return runs


def test_a_seed_decides_everything() -> None:
    assert planned(7, 60) == planned(7, 60)
    assert planned(7, 60) != planned(8, 60)


def test_a_longer_plan_begins_like_a_shorter_one() -> None:
    assert planned(3, 200)[:10] == planned(3, 100)[:10]


@pytest.mark.parametrize("most", [1, 2, 7, 200])
def test_there_are_as_many_blows_as_asked_for(most: int) -> None:
    assert sum(len(run.blows) for run in planned(1, most)) == most


def test_every_kind_comes_as_often_as_any_other() -> None:
    kinds = len(CATALOGUE) + 1
    counted = Counter(blow.name for run in planned(5, 10 * kinds) for blow in run.blows)
    assert counted == dict.fromkeys([*BY_NAME, TWO_AT_ONCE], 10)


def test_runs_have_the_phones_asked_for_and_blows_their_order() -> None:
    runs = planned(11, 400)
    assert {run.phones for run in runs} == {4, 5, 6, 7, 8}
    for run in runs:
        moments = [blow.at_step for blow in run.blows]
        assert moments == sorted(set(moments))
        assert 1 <= moments[0] <= moments[-1] < STEPS * 0.9
        assert len(moments) <= MOST_BLOWS


def test_two_at_once_are_two_faults_on_two_phones() -> None:
    strikes = [blow.strikes for run in planned(2, 800) for blow in run.blows if blow.name == TWO_AT_ONCE]
    assert strikes
    for one, other in strikes:
        assert one.fault != other.fault
        if Target.HOST not in {one.fault.target, other.fault.target} and other.fault.target is not Target.HEAD:
            assert one.seat != other.seat


def test_seats_are_those_of_the_run() -> None:
    for run in planned(13, 300):
        assert all(0 <= strike.seat < run.phones for blow in run.blows for strike in blow.strikes)


def test_only_the_kinds_asked_for_come() -> None:
    kinds = ["disk full", TWO_AT_ONCE]
    plan = endless_plan(4, range(4, 9), STEPS, kinds=kinds)
    counted = Counter(blow.name for run in first_blows(plan, 20) for blow in run.blows)
    assert counted == dict.fromkeys(kinds, 10)


def test_what_the_kernel_lacks_is_left_out_and_the_plan_the_same_up_to_there() -> None:
    offered = [fault for fault in CATALOGUE if fault.name != "corruption"]
    whole = [blow for run in islice(endless_plan(4, range(4, 9), STEPS), 30) for blow in run.blows]
    partly = [blow for run in islice(endless_plan(4, range(4, 9), STEPS, offered), 30) for blow in run.blows]
    before = next(index for index, blow in enumerate(whole) if blow.name == "corruption")
    assert [blow.name for blow in whole[:before]] == [blow.name for blow in partly[:before]]
    assert "corruption" not in {blow.name for blow in partly}
