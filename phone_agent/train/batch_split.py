"""Split of the global batch over phones, from measured step times. Pure, and the same on every rank.

The slowest phone sets the pace. Times are means over blocks of one second, or of one step if that is longer, because a
throttled processor may alternate between running and standing still. Images move only if that would have shortened the
steps of most of the last blocks considerably. Speeds are medians of the newest blocks, so that neither noise nor a
single outlier moves images.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]  # a value per rank

BLOCK_S = 1.0
BLOCKS = 5
MAJORITY = BLOCKS // 2 + 1
MIN_SPEED_UP = 1.15  # of a step, for images to move
MIN_SECONDS = 1e-9


@dataclass(frozen=True)
class StepTimings:
    """One step, by rank. `waited_s`: for communication. `work_fractions`: of its normal work that a rank should get."""

    images: NDArray[np.int64]
    compute_s: Column
    waited_s: Column
    work_fractions: Column


@dataclass(frozen=True)
class SplitChange:
    """`rank` is the one whose batch changes most; it takes `slowdown` times as long per image as the median of the
    others."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    rank: int
    slowdown: float


@dataclass(frozen=True)
class TimingBlock:
    """Mean seconds per step: computing, by rank; and the waiting time of the rank that waited least."""

    compute_s: Column
    waited_s: float

    @classmethod
    def of(cls, steps: Sequence[StepTimings]) -> TimingBlock:
        waited_s = sum(float(step.waited_s.min()) for step in steps) / len(steps)
        return cls(np.add.reduce([step.compute_s for step in steps]) / len(steps), waited_s)


class BatchSplitter:
    """`batches` are the ones in effect, or about to take effect. `smallest`: of a rank that has images."""

    def __init__(self, batches: Sequence[int], smallest: int = 1) -> None:
        self._smallest = smallest
        self._use(batches, np.ones(len(batches)))
        self._image_s: Column = 1 / self._images  # at first, every phone is as fast as planned
        self._is_measured = np.zeros(len(batches), bool)
        self._blocks: deque[TimingBlock] = deque(maxlen=BLOCKS)
        self._start_block()

    def _use(self, batches: Sequence[int], work_fractions: Column) -> None:
        self.batches = tuple(batches)
        self._images = np.array(batches, np.int64)
        self._work_fractions = work_fractions

    def observe(self, step: StepTimings) -> SplitChange | None:
        """Takes the timings of all ranks for one step; returns the change from now on, if any."""
        if not np.array_equal(step.images, self._images):
            return None  # from before the last change
        loads_changed = not np.array_equal(step.work_fractions, self._work_fractions)
        measured = self._measure(step)
        if not step.work_fractions.any() or not (measured or loads_changed):
            return None
        costs = _scaled(self._image_s, step.work_fractions)
        better = split_batch(sum(self.batches), costs.tolist(), self._smallest)
        if better == self.batches or not (loads_changed or self._is_worthwhile(better)):
            return None
        change = SplitChange(self.batches, better, *self._most_changed(better))
        self._use(better, step.work_fractions)
        self._blocks.clear()
        self._start_block()
        return change

    def _measure(self, step: StepTimings) -> bool:
        """Whether there are new measurements to decide by."""
        self._steps.append(step)
        self._steps_s += float(step.compute_s.max())
        if self._steps_s < BLOCK_S:
            return False
        self._blocks.append(TimingBlock.of(self._steps))
        self._start_block()
        if len(self._blocks) < BLOCKS:
            return False
        self._update_image_times()
        return True

    def _start_block(self) -> None:
        self._steps: list[StepTimings] = []  # not yet in a block
        self._steps_s = 0.0

    def _update_image_times(self) -> None:
        """From the newest blocks. A paused phone is assumed to be as fast as when it was last measured; one never
        measured, as fast as planned relative to the others."""
        newest = [block.compute_s for block in self._blocks][-MAJORITY:]
        works = self._images > 0
        measured_s = np.maximum(np.median(newest, axis=0) / np.maximum(self._images, 1), MIN_SECONDS)
        scale = np.median(measured_s[works] / self._image_s[works])
        self._is_measured |= works
        paused_s = np.where(self._is_measured, self._image_s, self._image_s * scale)
        self._image_s = np.where(works, measured_s, paused_s)

    def _is_worthwhile(self, better: Sequence[int]) -> bool:
        return sum(self._speed_up(block, better) >= MIN_SPEED_UP for block in self._blocks) >= MAJORITY

    def _speed_up(self, block: TimingBlock, better: Sequence[int]) -> float:
        """Of such a step. The common waiting time for gradients does not change; phones with a reduced load count as
        proportionally slower."""
        works = self._images > 0
        now = _scaled(block.compute_s, self._work_fractions)[works]
        then = now * np.array(better)[works] / self._images[works]
        return float((now.max() + block.waited_s) / max(then.max() + block.waited_s, MIN_SECONDS))

    def _most_changed(self, better: Sequence[int]) -> tuple[int, float]:
        ratio = (np.array(better) + 0.5) / (self._images + 0.5)
        rank = int(np.argmax(np.maximum(ratio, 1 / ratio)))
        others = np.delete(self._image_s, rank)
        return rank, float(self._image_s[rank] / np.median(others)) if others.size else 1.0


def _scaled(seconds: Column, work_fractions: Column) -> Column:
    """Infinite without work."""
    return np.divide(seconds, work_fractions, out=np.full_like(seconds, math.inf), where=work_fractions > 0)


def split_batch(images: int, costs: Sequence[float], smallest: int = 1) -> tuple[int, ...]:
    """The split for which the last rank finishes earliest; `costs` are seconds per image.

    None at infinite cost, at least `smallest` at any other: a rank without images is not measured.
    """
    speeds = [1 / cost for cost in costs]
    total = sum(speeds)
    found = [max(smallest, int(images * speed / total)) if speed else 0 for speed in speeds]
    ranks = [rank for rank, speed in enumerate(speeds) if speed]
    missing = images - sum(found)
    next_s = [((found[rank] + 1) * costs[rank], rank) for rank in ranks] if missing > 0 else []
    heapq.heapify(next_s)
    for _ in range(missing):
        _, rank = next_s[0]
        found[rank] += 1
        heapq.heapreplace(next_s, ((found[rank] + 1) * costs[rank], rank))
    last_s = [(-found[rank] * costs[rank], rank) for rank in ranks if found[rank] > smallest] if missing < 0 else []
    heapq.heapify(last_s)
    for _ in range(-missing):
        _, rank = heapq.heappop(last_s)
        found[rank] -= 1
        if found[rank] > smallest:
            heapq.heappush(last_s, (-found[rank] * costs[rank], rank))
    return tuple(found)
