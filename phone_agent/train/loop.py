"""Synchronous data-parallel training: forward and backward, sum the gradients over all phones, update."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from phone_agent import rng
from phone_agent.comm import Collective
from phone_agent.data.sampling import Source
from phone_agent.nn.backends import Executable
from phone_agent.nn.packing import State
from phone_agent.schema import OptimizerSpec

DROPS = 4  # stream of random numbers; see data.sampling for the others


@dataclass(frozen=True)
class Loop:
    """`weight` is this rank's share of the global batch: weighted so, the summed gradient is the global batch's own."""

    executable: Executable
    state: State
    source: Source
    collective: Collective
    optimizer: OptimizerSpec
    weight: float
    seed: int = 0
    rank: int = 0

    def run(self, first: int, last: int) -> Iterator[tuple[int, float, float, float]]:
        """Steps `first` to `last`, counted from 1: step, own loss, seconds computing, seconds communicating."""
        for step in range(first, last + 1):
            started = time.monotonic()
            loss = self._loss_and_gradients(step)
            computed = time.monotonic()
            self.collective.allreduce(self.state.gradients)
            reduced = time.monotonic()
            self._update()
            yield step, loss, computed - started + time.monotonic() - reduced, reduced - computed

    def _loss_and_gradients(self, step: int) -> float:
        """Lets go of the batch: the next one is made in its place, not beside it."""
        batch = self.source.batch(step - 1)
        return self.executable.loss_and_gradients(batch.images, batch.labels, self.weight, self._draw(step))

    def _draw(self, step: int) -> int:
        """Decides what dropout drops: something else on each rank and at each step, and the same when run again."""
        return int(rng.bits((self.seed, DROPS, self.rank), 1, start=step)[0])

    def _update(self) -> None:
        rules = self.optimizer
        self.executable.update(rules.learning_rate, rules.momentum, rules.weight_decay, slice(None))
