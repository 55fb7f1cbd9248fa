"""What every rank does with the results of all ranks after a step must not take longer in Python for more ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent.device.condition import Condition
from phone_agent.train.events import ConditionEvents, EventLog
from phone_agent.train.load_balance import LoadBalancer
from phone_agent.train.progress import RunMetrics
from phone_agent.train.rank_steps import Conditions, RankStep, RankSteps, Request
from tests.phone_agent.phones import run_spec


class EqualRanks:
    """A world in which all ranks have the results of this one."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = size, rank

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.tile(row, (self.size, 1))


def calls_per_step(ranks: int, rank: int, path: Path) -> int:
    """Function calls of the second step, in which nothing changes."""
    spec, world = run_spec((4,) * ranks, steps=9), EqualRanks(ranks, rank)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    with EventLog(rank, "p1-01", path) as events:
        metrics = RunMetrics(spec, world, events)  # type: ignore[arg-type]
        conditions, balancer = ConditionEvents(spec.ranks, rank, events), LoadBalancer(spec, rank, largest=4)
        for step in (1, 2):
            sys.setprofile(count if step == 2 else None)
            steps = metrics.report(step, RankStep(1.0, 0.1, 0.01, Condition(temperature_c=40.0), images=4))
            conditions.observe(steps.conditions)
            balancer.observe(step, steps)
            balancer.micro_batches(step + 2)
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("rank", [0, 1])
def test_the_work_of_a_step_does_not_grow_with_the_number_of_ranks(tmp_path: Path, rank: int) -> None:
    few, many = (calls_per_step(ranks, rank, tmp_path / str(ranks)) for ranks in (20, 2000))
    assert many <= few + 10  # numpy may choose another algorithm


def test_columns_hold_the_results_of_each_rank() -> None:
    hot = Condition(temperature_c=80.0, drains=1.0)
    head = RankStep(1.0, 0.5, 0.1, request=Request.STOP)
    steps = RankSteps.of([head, RankStep(2.0, 0.25, 0.2, hot, 0.3, images=7)])
    assert (steps.loss.tolist(), steps.images.tolist(), steps.request) == ([1, 2], [1, 7], Request.STOP)
    assert (steps.compute_s[1], steps.comm_s[1], steps.reduce_s[1]) == (0.25, 0.2, 0.3)
    assert steps.conditions[1].temperature_c == 80.0
    assert Conditions.of([Condition(), hot]).column("drains").tolist() == [0, 1]
