"""Split of the global batch over phones, from measured step times. Pure, and the same on every rank.

The slowest phone sets the pace. Times are means over blocks of one second, or of one step if that is longer, because a
throttled processor may alternate between running and standing still. Images move only if that would have shortened the
steps of most of the last blocks considerably. Speeds are medians of the newest blocks, so that neither noise nor a
single outlier moves images.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

BLOCK_S = 1.0
BLOCKS = 5
MAJORITY = BLOCKS // 2 + 1
MIN_SPEED_UP = 1.15  # of a step, for images to move
MIN_SECONDS = 1e-9


@dataclass(frozen=True)
class StepTiming:
    """One rank's step. `waited_s`: for communication. `work_fraction`: fraction of its normal work it should get."""

    images: int
    compute_s: float
    waited_s: float = 0.0
    work_fraction: float = 1.0


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

    compute_s: tuple[float, ...]
    waited_s: float

    @classmethod
    def of(cls, steps: Sequence[Sequence[StepTiming]]) -> TimingBlock:
        """Of the timings of all ranks, by step."""
        compute_s = (sum(one.compute_s for one in of_rank) / len(steps) for of_rank in zip(*steps, strict=True))
        return cls(tuple(compute_s), sum(min(one.waited_s for one in step) for step in steps) / len(steps))


class BatchSplitter:
    """`batches` are the ones in effect, or about to take effect. `smallest`: of a rank that has images."""

    def __init__(self, batches: Sequence[int], smallest: int = 1) -> None:
        self.batches = tuple(batches)
        self._smallest = smallest
        self._work_fractions = (1.0,) * len(self.batches)
        self._image_s = [1 / images for images in self.batches]  # at first, every phone is as fast as planned
        self._measured_ranks: set[int] = set()
        self._blocks: deque[TimingBlock] = deque(maxlen=BLOCKS)
        self._steps: list[Sequence[StepTiming]] = []  # not yet in a block
        self._steps_s = 0.0

    def observe(self, steps: Sequence[StepTiming]) -> SplitChange | None:
        """Takes the timings of all ranks for one step; returns the change from now on, if any."""
        if tuple(step.images for step in steps) != self.batches:
            return None  # from before the last change
        work_fractions = tuple(step.work_fraction for step in steps)
        loads_changed, measured = work_fractions != self._work_fractions, self._measure(steps)
        if not any(work_fractions) or not (measured or loads_changed):
            return None
        costs = [_scaled(cost, factor) for cost, factor in zip(self._image_s, work_fractions, strict=True)]
        better = split_batch(sum(self.batches), costs, self._smallest)
        if better == self.batches or not (loads_changed or self._is_worthwhile(better)):
            return None
        change = SplitChange(self.batches, better, *self._most_changed(better))
        self.batches, self._work_fractions = better, work_fractions
        self._blocks.clear()
        self._start_block()
        return change

    def _measure(self, steps: Sequence[StepTiming]) -> bool:
        """Whether there are new measurements to decide by."""
        self._steps.append(steps)
        self._steps_s += max(step.compute_s for step in steps)
        if self._steps_s < BLOCK_S:
            return False
        self._blocks.append(TimingBlock.of(self._steps))
        self._start_block()
        if len(self._blocks) < BLOCKS:
            return False
        self._update_image_times()
        return True

    def _start_block(self) -> None:
        self._steps, self._steps_s = [], 0.0

    def _update_image_times(self) -> None:
        """From the newest blocks. A paused phone is assumed to be as fast as when it was last measured; one never
        measured, as fast as planned relative to the others."""
        newest = [block.compute_s for block in self._blocks][-MAJORITY:]
        found = {
            rank: max(median(of_rank) / images, MIN_SECONDS)
            for rank, (images, *of_rank) in enumerate(zip(self.batches, *newest, strict=True))
            if images
        }
        scale = median(image_s / self._image_s[rank] for rank, image_s in found.items())
        self._measured_ranks |= found.keys()
        self._image_s = [
            found.get(rank, before if rank in self._measured_ranks else before * scale)
            for rank, before in enumerate(self._image_s)
        ]

    def _is_worthwhile(self, better: Sequence[int]) -> bool:
        return sum(self._speed_up(block, better) >= MIN_SPEED_UP for block in self._blocks) >= MAJORITY

    def _speed_up(self, block: TimingBlock, better: Sequence[int]) -> float:
        """Of such a step. The common waiting time for gradients does not change; phones with a reduced load count as
        proportionally slower."""
        now, then = 0.0, 0.0
        for rank, (images, more) in enumerate(zip(self.batches, better, strict=True)):
            if images:
                seconds = _scaled(block.compute_s[rank], self._work_fractions[rank])
                now, then = max(now, seconds), max(then, seconds * more / images)
        return (now + block.waited_s) / max(then + block.waited_s, MIN_SECONDS)

    def _most_changed(self, better: Sequence[int]) -> tuple[int, float]:
        ranks = range(len(better))
        rank = max(ranks, key=lambda each: abs(math.log((better[each] + 0.5) / (self.batches[each] + 0.5))))
        others = [self._image_s[other] for other in ranks if other != rank]
        return rank, self._image_s[rank] / median(others) if others else 1.0


def _scaled(seconds: float, work_fraction: float) -> float:
    return seconds / work_fraction if work_fraction else math.inf


def split_batch(images: int, costs: Sequence[float], smallest: int = 1) -> tuple[int, ...]:
    """The split for which the last rank finishes earliest; `costs` are seconds per image.

    None at infinite cost, at least `smallest` at any other: a rank without images is not measured.
    """
    speeds = [1 / cost for cost in costs]
    total = sum(speeds)
    found = [max(smallest, int(images * speed / total)) if speed else 0 for speed in speeds]
    ranks = [rank for rank, speed in enumerate(speeds) if speed]
    while sum(found) < images:
        found[min(ranks, key=lambda rank: (found[rank] + 1) * costs[rank])] += 1
    while sum(found) > images:
        found[max((rank for rank in ranks if found[rank] > smallest), key=lambda rank: found[rank] * costs[rank])] -= 1
    return tuple(found)
