"""How many images of a step each phone takes, from how long it took for them. Pure, and the same on every rank.

The slowest phone sets the pace. Times are means over blocks of a second, or of a step where that is longer: a throttled
processor may run and stand still in turns. Images move where that would have made most of the last blocks' steps a
good part shorter, by the median of the newest: neither noise nor a single hiccup moves any.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

BLOCK_S = 1.0
BLOCKS = 5
MOST = BLOCKS // 2 + 1
WORTHWHILE = 1.15  # how many times shorter a step must become
LEAST_S = 1e-9


@dataclass(frozen=True)
class Taken:
    """One rank's step. `waited_s` for communication; `ease` is how much of its work it should be given."""

    images: int
    compute_s: float
    waited_s: float = 0.0
    ease: float = 1.0


@dataclass(frozen=True)
class Change:
    """`rank` is the one whose share changes most; an image takes it `times` as long as the others, in the middle."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    rank: int
    times: float


@dataclass(frozen=True)
class Block:
    """Seconds of a step in the mean: computing, by rank; and what even the one that waited least waited."""

    compute_s: tuple[float, ...]
    waited_s: float

    @classmethod
    def of(cls, steps: Sequence[Sequence[Taken]]) -> Block:
        """Steps by rank."""
        compute_s = (sum(one.compute_s for one in of_rank) / len(steps) for of_rank in zip(*steps, strict=True))
        return cls(tuple(compute_s), sum(min(one.waited_s for one in step) for step in steps) / len(steps))


class Balancer:
    """`batches` are those in force, or about to be."""

    def __init__(self, batches: Sequence[int]) -> None:
        self.batches = tuple(batches)
        self._eases = (1.0,) * len(self.batches)
        self._an_image = [1 / images for images in self.batches]  # takes so long; at first, all do as well as planned
        self._known: set[int] = set()  # ranks that were measured
        self._blocks: deque[Block] = deque(maxlen=BLOCKS)
        self._steps: list[Sequence[Taken]] = []  # not yet in a block
        self._steps_s = 0.0

    def observe(self, steps: Sequence[Taken]) -> Change | None:
        """By rank. What others should be taken from now on, if so."""
        if tuple(step.images for step in steps) != self.batches:
            return None  # from before the last change
        eases = tuple(step.ease for step in steps)
        eased, measured = eases != self._eases, self._measured(steps)
        if not any(eases) or not (measured or eased):
            return None
        better = shares(
            sum(self.batches), [_eased(cost, ease) for cost, ease in zip(self._an_image, eases, strict=True)]
        )
        if better == self.batches or not (eased or self._worthwhile(better)):
            return None
        change = Change(self.batches, better, *self._most_changed(better))
        self.batches, self._eases = better, eases
        self._blocks.clear()
        self._start_block()
        return change

    def _measured(self, steps: Sequence[Taken]) -> bool:
        """Whether there is something new to judge by."""
        self._steps.append(steps)
        self._steps_s += max(step.compute_s for step in steps)
        if self._steps_s < BLOCK_S:
            return False
        self._blocks.append(Block.of(self._steps))
        self._start_block()
        if len(self._blocks) < BLOCKS:
            return False
        self._learn()
        return True

    def _start_block(self) -> None:
        self._steps, self._steps_s = [], 0.0

    def _learn(self) -> None:
        """From the newest blocks. A phone that rests is as fast as when it last was measured; one that never was, as
        planned beside the others."""
        newest = [block.compute_s for block in self._blocks][-MOST:]
        found = {
            rank: max(median(of_rank) / images, LEAST_S)
            for rank, (images, *of_rank) in enumerate(zip(self.batches, *newest, strict=True))
            if images
        }
        scale = median(an_image / self._an_image[rank] for rank, an_image in found.items())
        self._known |= found.keys()
        self._an_image = [
            found.get(rank, before if rank in self._known else before * scale)
            for rank, before in enumerate(self._an_image)
        ]

    def _worthwhile(self, better: Sequence[int]) -> bool:
        """What all wait for gradients does not become shorter."""
        return sum(self._gain(block, better) >= WORTHWHILE for block in self._blocks) >= MOST

    def _gain(self, block: Block, better: Sequence[int]) -> float:
        """How many times shorter such steps become; for phones that are eased, as if they were slower by as much."""
        now, then = 0.0, 0.0
        for rank, (images, more) in enumerate(zip(self.batches, better, strict=True)):
            if images:
                seconds = _eased(block.compute_s[rank], self._eases[rank])
                now, then = max(now, seconds), max(then, seconds * more / images)
        return (now + block.waited_s) / max(then + block.waited_s, LEAST_S)

    def _most_changed(self, better: Sequence[int]) -> tuple[int, float]:
        ranks = range(len(better))
        rank = max(ranks, key=lambda each: abs(math.log((better[each] + 0.5) / (self.batches[each] + 0.5))))
        others = [self._an_image[other] for other in ranks if other != rank]
        return rank, self._an_image[rank] / median(others) if others else 1.0


def _eased(seconds: float, ease: float) -> float:
    return seconds / ease if ease else math.inf


def shares(images: int, costs: Sequence[float]) -> tuple[int, ...]:
    """So many images to each that the last is done as early as can be; `costs` are seconds an image.

    None at infinite cost, at least one at any other: who takes none is not measured.
    """
    speeds = [1 / cost for cost in costs]
    whole = sum(speeds)
    found = [max(1, int(images * speed / whole)) if speed else 0 for speed in speeds]
    ranks = [rank for rank, speed in enumerate(speeds) if speed]
    while sum(found) < images:
        found[min(ranks, key=lambda rank: (found[rank] + 1) * costs[rank])] += 1
    while sum(found) > images:
        found[max((rank for rank in ranks if found[rank] > 1), key=lambda rank: found[rank] * costs[rank])] -= 1
    return tuple(found)
