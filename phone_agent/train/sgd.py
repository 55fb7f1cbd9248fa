"""Stochastic gradient descent with momentum: one pass over the packed buffers, a cache-sized block at a time."""

from __future__ import annotations

from phone_agent.nn.packing import State
from phone_agent.schema import OptimizerSpec

BLOCK = 16 * 1024


class Sgd:
    """v = momentum v + g + decay w;  w = w - rate v."""

    def __init__(self, spec: OptimizerSpec, state: State) -> None:
        self._spec, self._state = spec, state

    def step(self) -> None:
        """Leaves the gradients spent: they serve as scratch."""
        for start in range(0, len(self._state.values), BLOCK):
            self._update(slice(start, start + BLOCK))

    def _update(self, block: slice) -> None:
        spec, state = self._spec, self._state
        values, gradients, momenta = state.values[block], state.gradients[block], state.momenta[block]
        momenta *= spec.momentum
        momenta += gradients
        if spec.weight_decay:
            momenta += spec.weight_decay * values
        gradients[...] = momenta
        gradients *= spec.learning_rate
        values -= gradients
