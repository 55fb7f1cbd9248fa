"""The test harness: if one rank fails, all ranks end, wherever they wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from phone_agent import models
from phone_agent.comm.factory import make_collective
from phone_agent.comm.world import World
from phone_agent.data.sampling import Batch
from tests.phone_agent.thread_world import ThreadWorld, on_ranks
from tests.phone_agent.threaded_training import Samples, Setting, together


class BrokenError(Exception):
    pass


def wait_in_allreduce(world: World) -> None:
    make_collective("ring", world).allreduce(np.ones(100, np.float32))


def wait_in_allgather(world: World) -> None:
    world.allgather(np.ones(1))


@pytest.mark.parametrize("others_wait", [wait_in_allreduce, wait_in_allgather])
def test_a_failed_rank_ends_all_ranks(others_wait: Callable[[World], None]) -> None:
    ended: list[int] = []

    def work(world: ThreadWorld) -> None:
        if world.rank == 1:
            raise BrokenError
        try:
            others_wait(world)
        finally:
            ended.append(world.rank)

    with pytest.raises(BrokenError):
        on_ranks(3, work)
    assert sorted(ended) == [0, 2]


class Breaks(Samples):
    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        if step == 2 and part.start > 0:
            raise BrokenError
        return super().batch(step, part)


class BreakingSetting(Setting):
    def source(self) -> Samples:
        return Breaks(self.graph, self.global_batch)


@pytest.mark.parametrize("overlapping", [True, False])
def test_a_rank_that_fails_in_training_ends_the_training(*, overlapping: bool) -> None:
    with pytest.raises(BrokenError):
        together(BreakingSetting(models.build("lenet", 10, (28, 28, 1)), (2, 2)), overlapping=overlapping)


def test_a_rank_that_never_ends_is_named() -> None:
    never = threading.Event()

    def work(world: ThreadWorld) -> None:
        if world.rank == 1:
            never.wait()

    with pytest.raises(TimeoutError, match=r"(?s)ranks that did not end:\n.*rank 1\n.*never.wait"):
        on_ranks(2, work, timeout_s=0.2)
    never.set()
