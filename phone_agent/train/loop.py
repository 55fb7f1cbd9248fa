"""Synchronous data-parallel training: forward and backward, sum the gradients over all phones, update."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from phone_agent.comm import Collective
from phone_agent.data.sampling import Source
from phone_agent.nn.backends import Executable
from phone_agent.nn.packing import State
from phone_agent.train.sgd import Sgd


@dataclass(frozen=True)
class Loop:
    """`weight` is this rank's share of the global batch: weighted so, the summed gradient is the global batch's own."""

    executable: Executable
    state: State
    source: Source
    collective: Collective
    optimizer: Sgd
    weight: float

    def run(self, first: int, last: int) -> Iterator[tuple[int, float, float, float]]:
        """Steps `first` to `last`, counted from 1: step, own loss, seconds computing, seconds communicating."""
        for step in range(first, last + 1):
            started = time.monotonic()
            batch = self.source.batch(step - 1)
            loss = self.executable.loss_and_gradients(batch.images, batch.labels, self.weight)
            computed = time.monotonic()
            self.collective.allreduce(self.state.gradients)
            reduced = time.monotonic()
            self.optimizer.step()
            yield step, loss, computed - started + time.monotonic() - reduced, reduced - computed
