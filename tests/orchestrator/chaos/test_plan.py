"""The plan of a campaign: reproducible, fair, and within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from orchestrator.chaos.catalog import BY_NAME, CATALOG, TWO_AT_ONCE, Target
from orchestrator.chaos.plan import MAX_INJECTIONS, RunPlan, generate_plans

STEPS = 120


def first_runs(seed: int, injections: int, phones: range = range(4, 9)) -> list[RunPlan]:
    """The first runs of a plan, with this many injections in all."""
    return limit(generate_plans(seed, phones, STEPS), injections)


def limit(plan: Iterator[RunPlan], most: int) -> list[RunPlan]:
    runs: list[RunPlan] = []
    while (left := most - sum(len(run.injections) for run in runs)) > 0:
        runs.append(next(plan).limited_to(left))
    return runs


def test_the_seed_determines_the_plan() -> None:
    assert first_runs(7, 60) == first_runs(7, 60)
    assert first_runs(7, 60) != first_runs(8, 60)


def test_nobody_is_attached_to_every_second_run() -> None:
    attached = [run.attached for run in first_runs(7, 60)]
    assert attached[:4] in ([True, False] * 2, [False, True] * 2)


def test_a_longer_plan_starts_like_a_shorter_one() -> None:
    assert first_runs(3, 200)[:10] == first_runs(3, 100)[:10]


@pytest.mark.parametrize("most", [1, 2, 7, 200])
def test_a_plan_has_the_requested_number_of_injections(most: int) -> None:
    assert sum(len(run.injections) for run in first_runs(1, most)) == most


def test_all_kinds_are_equally_frequent() -> None:
    kinds = len(CATALOG) + 1
    counted = Counter(injection.kind for run in first_runs(5, 10 * kinds) for injection in run.injections)
    assert counted == dict.fromkeys([*BY_NAME, TWO_AT_ONCE], 10)


def test_runs_have_the_requested_phones_and_injections_are_ordered() -> None:
    runs = first_runs(11, 400)
    assert {run.phones for run in runs} == {4, 5, 6, 7, 8}
    for run in runs:
        moments = [injection.at_step for injection in run.injections]
        assert moments == sorted(set(moments))
        assert 1 <= moments[0] <= moments[-1] < STEPS * 0.9
        assert len(moments) <= MAX_INJECTIONS


def test_two_at_once_are_different_faults_on_different_phones() -> None:
    pairs = [
        injection.faults for run in first_runs(2, 800) for injection in run.injections if injection.kind == TWO_AT_ONCE
    ]
    assert pairs
    for one, other in pairs:
        assert one.fault != other.fault
        if Target.HOST not in {one.fault.target, other.fault.target} and other.fault.target is not Target.HEAD_PHONE:
            assert one.rank != other.rank


def test_faults_hit_ranks_of_the_run() -> None:
    for run in first_runs(13, 300):
        assert all(0 <= planned.rank < run.phones for injection in run.injections for planned in injection.faults)


def test_only_the_requested_kinds_are_injected() -> None:
    kinds = ["disk full", TWO_AT_ONCE]
    plan = generate_plans(4, range(4, 9), STEPS, kinds=kinds)
    counted = Counter(injection.kind for run in limit(plan, 20) for injection in run.injections)
    assert counted == dict.fromkeys(kinds, 10)


def test_unsupported_faults_are_skipped_and_the_plan_is_otherwise_the_same() -> None:
    supported = [fault for fault in CATALOG if fault.name != "corruption"]
    complete = [injection for run in islice(generate_plans(4, range(4, 9), STEPS), 30) for injection in run.injections]
    partly = [
        injection
        for run in islice(generate_plans(4, range(4, 9), STEPS, supported), 30)
        for injection in run.injections
    ]
    before = next(index for index, injection in enumerate(complete) if injection.kind == "corruption")
    assert [injection.kind for injection in complete[:before]] == [injection.kind for injection in partly[:before]]
    assert "corruption" not in {injection.kind for injection in partly}
