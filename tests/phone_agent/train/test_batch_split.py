"""The split of the batch, from injected times: no test depends on a clock."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent.train.batch_split import BLOCKS, BatchSplitter, SplitChange, StepTimings, split_batch

FAST = 0.01  # seconds per image


def timings(
    images: Sequence[int], compute_s: Sequence[float], waited_s: float = 0.0, work_fractions: Sequence[float] = ()
) -> StepTimings:
    fractions = work_fractions or [1.0] * len(images)
    return StepTimings(
        np.array(images), np.array(compute_s), np.full(len(images), waited_s), np.array(fractions, np.float64)
    )


class Rack:
    """Phones that take `image_s` seconds per image, with the batches of the splitter."""

    def __init__(self, batches: Sequence[int], image_s: Sequence[float] | None = None) -> None:
        self.balancer = BatchSplitter(batches)
        self.image_s = list(image_s or [FAST] * len(batches))
        self.work_fractions = [1.0] * len(batches)
        self.waited_s = 0.0
        self.changes: list[SplitChange] = []

    def run(self, steps: int, noise: Sequence[float] = (1.0,)) -> None:
        for step in range(steps):
            factor = noise[step % len(noise)]
            compute_s = [
                images * each * (factor if rank == 0 else 1)
                for rank, (images, each) in enumerate(zip(self.balancer.batches, self.image_s, strict=True))
            ]
            results = timings(self.balancer.batches, compute_s, self.waited_s, self.work_fractions)
            if change := self.balancer.observe(results):
                self.changes.append(change)

    @property
    def slowest_s(self) -> float:
        return max(images * each for images, each in zip(self.balancer.batches, self.image_s, strict=True))

    @property
    def ideal_s(self) -> float:
        return sum(self.balancer.batches) / sum(1 / each for each in self.image_s)


def test_equal_phones_keep_their_batches() -> None:
    rack = Rack((32, 32, 32))
    rack.run(500)
    assert rack.changes == []


def test_slow_phone_gets_fewer_images_until_it_recovers() -> None:
    rack = Rack((32, 32))
    rack.run(100)
    rack.image_s[1] *= 3
    rack.run(100)
    assert [change.after for change in rack.changes] == [(48, 16)]
    assert (rack.changes[0].rank, round(rack.changes[0].slowdown, 3)) == (1, 3.0)
    assert rack.slowest_s <= 1.02 * rack.ideal_s
    rack.image_s[1] /= 3
    rack.run(100)
    assert [change.after for change in rack.changes[1:]] == [(32, 32)]


def test_unequal_phones_are_balanced() -> None:
    rack = Rack((10, 10, 10, 10), [FAST, FAST, 4 * FAST, 2 * FAST])
    rack.run(300)
    assert sum(rack.balancer.batches) == 40
    assert rack.balancer.batches == (15, 15, 3, 7)


@pytest.mark.parametrize("noise", [(1.0, 1.12), (0.9, 1.0, 1.1), (1, 1, 1, 1, 1, 30)])
def test_noise_moves_no_images(noise: Sequence[float]) -> None:
    """A phone with one step in six thirty times as long is slow, but not if steps are long."""
    rack = Rack((100, 100))  # each step is a block
    rack.run(600, noise)
    assert rack.changes == []


def test_processor_that_alternates_between_running_and_stalling_is_slow() -> None:
    """Most steps are fast, so that only blocks of steps reveal it."""
    rack = Rack((10, 10), [FAST / 10] * 2)
    rack.run(4000, (1, 1, 1, 9))
    assert rack.balancer.batches == (5, 15)
    assert len(rack.changes) == 1


def test_small_gain_compared_with_waiting_moves_no_images() -> None:
    rack = Rack((10, 10), [FAST, 1.6 * FAST])
    rack.waited_s = 0.5
    rack.run(400)
    assert rack.changes == []
    rack.waited_s = 0.0
    rack.run(400)
    assert rack.balancer.batches == (12, 8)


def test_reduced_phones_get_less_at_once_and_paused_ones_nothing() -> None:
    rack = Rack((20, 20, 20))
    rack.work_fractions[0] = 0.5
    rack.run(1)
    assert rack.balancer.batches == (12, 24, 24)
    rack.work_fractions[0] = 0.0
    rack.run(1)
    assert rack.balancer.batches == (0, 30, 30)
    rack.run(300)
    rack.work_fractions[0] = 1.0
    rack.run(1)
    assert rack.balancer.batches == (20, 20, 20)
    assert len(rack.changes) == 3


def test_no_images_move_if_all_phones_pause() -> None:
    rack = Rack((4, 4))
    rack.work_fractions = [0.0, 0.0]
    rack.run(3)
    assert rack.changes == []


def test_steps_from_before_a_change_are_ignored() -> None:
    balancer = BatchSplitter((8, 8))
    slow = timings((8, 8), (8.0, 2.0))
    changes = [balancer.observe(slow) for _ in range(3 * BLOCKS)]
    assert [change.after for change in changes if change] == [(3, 13)]


@given(costs=st.lists(st.floats(1e-4, 1e2), min_size=1, max_size=12), more=st.integers(0, 100))
def test_no_rank_gets_fewer_images_than_batch_normalization_needs(costs: list[float], more: int) -> None:
    images = 2 * len(costs) + more
    found = split_batch(images, costs, smallest=2)
    assert (sum(found), min(found) >= 2) == (images, True)


@given(
    images=st.integers(12, 3000),
    costs=st.lists(st.floats(1e-4, 1e2), min_size=1, max_size=12),
    resting=st.integers(0, 11),
)
def test_split_adds_up_and_minimizes_the_slowest_time(images: int, costs: list[float], resting: int) -> None:
    if len(costs) > 1:
        costs[resting % len(costs)] = math.inf
    found = split_batch(images, costs)
    assert sum(found) == images
    assert all((share == 0) == math.isinf(cost) for share, cost in zip(found, costs, strict=True))
    last = max(share * cost for share, cost in zip(found, costs, strict=True) if share > 1) if images > 12 else 0
    assert all((share + 1) * cost >= last * (1 - 1e-9) for share, cost in zip(found, costs, strict=True)), (
        "one could move"
    )
