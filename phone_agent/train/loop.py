"""Synchronous data-parallel training: forward and backward here, the rest beside it, on the communication thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.reducer import Reducer
from phone_agent.comm.world import World
from phone_agent.contract import rng
from phone_agent.data.sampling import Source
from phone_agent.device.condition import Condition
from phone_agent.memckpt.checkpointer import NULL_CHECKPOINTER, Checkpointer
from phone_agent.nn.executable import Executable
from phone_agent.nn.packing import State
from phone_agent.train.optimizers import Optimizer
from phone_agent.train.overlap import Overlap
from phone_agent.train.progress import RankStep

DROPS = 4  # stream of random numbers; see data.sampling for the others
AGREED_AFTER = 2  # steps: how one went is known to all before the computing of the second after it begins


@dataclass(frozen=True)
class Updates:
    """What the communication thread does to the state. `tell` is called with every step's number and own result."""

    world: World
    state: State
    reducer: Reducer
    optimizer: Optimizer
    rate: Callable[[int], float]
    tell: Callable[[int, RankStep], None]
    keep: Checkpointer = NULL_CHECKPOINTER

    def reduce(self, where: slice, step: int) -> None:
        self.reducer.reduce(self.state.gradients, where, step)

    def update(self, part: slice, step: int) -> None:
        self.optimizer.update(part, self.rate(step), step)

    def exchange(self, step: int, own: RankStep) -> None:
        self.keep.commit(step)
        self.tell(step, own)
        self.keep.take_snapshot(step)

    def gather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.world.allgather(row)


def micro_batches(batch: int, largest: int, first: int = 0) -> list[slice]:
    """Of the images from `first` on. As few as possible, as even as possible: normalisations see alike many images each
    time."""
    count = -(-batch // largest)
    borders = [first + batch * index // max(count, 1) for index in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(borders)]


def sizes(parts: Sequence[slice]) -> list[int]:
    return [part.stop - part.start for part in parts]


class Shares(Protocol):
    def parts(self, step: int) -> Sequence[slice]:
        """Which of the step's images are computed here, and in which parts, one after the other; none: nothing is."""
        ...


@dataclass(frozen=True)
class Fixed:
    own: Sequence[slice]

    def parts(self, step: int) -> Sequence[slice]:
        del step
        return self.own


@dataclass(frozen=True)
class Loop:
    """Each part of a batch counts by its share of the global one: weighted so, the summed gradient is the global
    batch's own, whoever computed which part."""

    executable: Executable
    source: Source
    overlap: Overlap
    shares: Shares
    global_batch: int
    gradients: NDArray[np.float32]
    overlapping: bool = True
    seed: int = 0
    rank: int = 0
    condition: Callable[[], Condition] = Condition
    keep: Checkpointer = NULL_CHECKPOINTER

    def run(self, first: int, last: int) -> Iterator[int]:
        """Steps `first` to `last`, counted from 1. What a step changed is all there only once it has settled."""
        before: Sequence[slice] = ()
        for step in range(first, last + 1):
            self.overlap.catch_up(step - AGREED_AFTER)
            parts = self.shares.parts(step)
            if parts and parts != before:
                self._prepare(parts)
                before = parts
            started, waited = time.monotonic(), self.overlap.waited
            self.overlap.begin(step)
            loss = self._loss_and_gradients(step, parts) if parts else self._no_gradients()
            if not self.overlapping:
                self.overlap.update()
            comm_s = self.overlap.waited - waited
            compute_s = time.monotonic() - started - comm_s
            self.keep.capture_statistics(step)
            self.overlap.finish(RankStep(loss, compute_s, comm_s, self.condition(), images=sum(sizes(parts))))
            yield step

    def _prepare(self, parts: Sequence[slice]) -> None:
        self.executable.prepare(set(sizes(parts)))
        self.source.expect(parts)

    def _loss_and_gradients(self, step: int, parts: Sequence[slice]) -> float:
        """The mean over this rank's batch."""
        losses = [self._micro(step, number, parts) for number in range(len(parts))]
        return float(np.average(losses, weights=sizes(parts)))

    def _no_gradients(self) -> float:
        """A rank without images still carries the others' gradients; its own are zero."""
        for part in self.overlap.parts:
            self.overlap.need(part.start, part.stop)  # until then those of the step before are being summed there
            self.gradients[part] = 0
            if self.overlapping:
                self.overlap.ready(part.start, part.stop)
        return 0.0

    def _micro(self, step: int, number: int, parts: Sequence[slice]) -> float:
        """Lets go of the images: the next ones are made in their place, not beside them.

        Values are new in the first one only; gradients are complete in the last.
        """
        batch = self.source.batch(step - 1, parts[number])
        self.overlap.mark("data")
        loss = self.executable.loss_and_gradients(
            batch.images,
            batch.labels,
            len(batch.labels) / self.global_batch,
            self._draw(step, number),
            need=self.overlap.need if self.overlapping and number == 0 else None,
            ready=self.overlap.ready if self.overlapping and number == len(parts) - 1 else None,
            accumulate=number > 0,
        )
        self.overlap.mark("backward")
        return loss

    def _draw(self, step: int, number: int) -> int:
        """Decides what dropout drops: something else on each rank and at each step, and the same when run again."""
        return int(rng.bits((self.seed, DROPS, self.rank, number), 1, start=step)[0])
