"""Synchronous data-parallel training: forward and backward here, the rest beside it, on the communication thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from phone_agent import rng
from phone_agent.comm import Reducer
from phone_agent.comm.world import World
from phone_agent.data.sampling import Source
from phone_agent.nn.backends import Executable
from phone_agent.nn.packing import State
from phone_agent.train.optimiser import Optimiser
from phone_agent.train.overlap import Overlap
from phone_agent.train.progress import RankStep, Thermometer

DROPS = 4  # stream of random numbers; see data.sampling for the others


@dataclass(frozen=True)
class Updates:
    """What the communication thread does to the state. `tell` is called with every step's number and own result."""

    world: World
    state: State
    reducer: Reducer
    optimiser: Optimiser
    rate: Callable[[int], float]
    tell: Callable[[int, RankStep], None]

    def reduce(self, where: slice) -> None:
        self.reducer.reduce(self.state.gradients, where)

    def update(self, part: slice, step: int) -> None:
        self.optimiser.update(part, self.rate(step), step)

    def exchange(self, step: int, own: RankStep) -> None:
        self.tell(step, own)

    def gather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.world.allgather(row)


def micro_batches(batch: int, largest: int) -> list[slice]:
    """As few as possible, as even as possible: normalisations see alike many images each time."""
    count = -(-batch // largest)
    borders = [batch * index // count for index in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(borders)]


@dataclass(frozen=True)
class Loop:
    """`micro` are parts of this rank's batch, computed one after the other; each counts by its share of the global
    batch: weighted so, the summed gradient is the global batch's own."""

    executable: Executable
    source: Source
    overlap: Overlap
    micro: Sequence[slice]
    global_batch: int
    overlapping: bool = True
    seed: int = 0
    rank: int = 0
    thermometer: Thermometer = field(default_factory=Thermometer)

    def run(self, first: int, last: int) -> Iterator[int]:
        """Steps `first` to `last`, counted from 1. What a step changed is all there only once it has settled."""
        for step in range(first, last + 1):
            started, waited = time.monotonic(), self.overlap.waited
            self.overlap.begin(step)
            loss = self._loss_and_gradients(step)
            if not self.overlapping:
                self.overlap.update()
            comm_s = self.overlap.waited - waited
            compute_s = time.monotonic() - started - comm_s
            self.overlap.finish(RankStep(loss, compute_s, comm_s, self.thermometer.read()))
            yield step

    def _loss_and_gradients(self, step: int) -> float:
        """The mean over this rank's batch."""
        losses = [self._micro(step, number) for number in range(len(self.micro))]
        return float(np.average(losses, weights=[part.stop - part.start for part in self.micro]))

    def _micro(self, step: int, number: int) -> float:
        """Lets go of the images: the next ones are made in their place, not beside them.

        Values are new in the first one only; gradients are complete in the last.
        """
        batch = self.source.batch(step - 1, self.micro[number])
        self.overlap.mark("data")
        loss = self.executable.loss_and_gradients(
            batch.images,
            batch.labels,
            len(batch.labels) / self.global_batch,
            self._draw(step, number),
            need=self.overlap.need if self.overlapping and number == 0 else None,
            ready=self.overlap.ready if self.overlapping and number == len(self.micro) - 1 else None,
            accumulate=number > 0,
        )
        self.overlap.mark("backward")
        return loss

    def _draw(self, step: int, number: int) -> int:
        """Decides what dropout drops: something else on each rank and at each step, and the same when run again."""
        return int(rng.bits((self.seed, DROPS, self.rank, number), 1, start=step)[0])
