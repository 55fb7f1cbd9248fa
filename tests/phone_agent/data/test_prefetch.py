from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from phone_agent.data.prefetch import Prefetch
from phone_agent.data.sampling import ALL, Batch

BATCH = 5


@dataclass
class Counted:
    """Records which batches are requested, and by which thread; fails at a given step."""

    fails_at: int = -1
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    closed: bool = False

    def batch(self, step: int, part: slice = ALL) -> Batch:
        if step == self.fails_at:
            raise OSError("the disk is gone")
        numbers = np.arange(BATCH)[part] + step * BATCH
        self.asked.append((step, int(numbers[0]), len(numbers)))
        self.threads.add(threading.current_thread().name)
        return Batch(numbers.astype(np.float32), numbers)

    def expect(self, parts: Sequence[slice]) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_batches_arrive_in_order_and_at_most_one_ahead() -> None:
    source = Counted()
    ahead = Prefetch(source)
    for step in range(3, 6):
        assert ahead.batch(step).labels[0] == step * BATCH
        assert len(source.asked) <= step - 3 + 2
    ahead.close()
    assert [step for step, _, _ in source.asked][:3] == [3, 4, 5]
    assert source.threads == {"prefetch"}
    assert source.closed


def test_parts_of_batches_are_prefetched_too() -> None:
    source = Counted()
    parts = [slice(0, 2), slice(2, 4), slice(4, 5)]
    ahead = Prefetch(source, parts)
    labels = [ahead.batch(step, part).labels.tolist() for step in range(2) for part in parts]
    ahead.close()
    assert [label for part in labels for label in part] == list(range(2 * BATCH))
    assert len(source.asked) == len(set(source.asked)), "nothing is made twice"


def test_unexpected_step_is_prepared_on_request() -> None:
    ahead = Prefetch(Counted())
    assert [ahead.batch(step).labels[0] for step in (0, 7, 7, 2)] == [0, 35, 35, 10]
    ahead.close()


def test_prefetch_error_is_raised_when_the_batch_is_requested() -> None:
    ahead = Prefetch(Counted(fails_at=2))
    assert ahead.batch(0).labels[0] == 0
    assert ahead.batch(1).labels[0] == BATCH
    with pytest.raises(OSError, match="the disk is gone"):
        ahead.batch(2)
    assert ahead.batch(3).labels[0] == 3 * BATCH
    ahead.close()


def test_collected_prefetch_ends_its_thread() -> None:
    ahead = Prefetch(Counted())
    ahead.batch(0)
    thread = ahead._thread
    del ahead
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
