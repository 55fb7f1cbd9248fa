"""For slow links: phones step alone, and share what they learned only now and then.

Since they last did, all know the same values (`anchor`); how far each has come from there is an outer gradient. Its
mean, by images, is stepped along: as it is, which averages the values; or with momentum, as DiLoCo does (Douillard et
al., 2023). It travels like gradients do, in their buffer, which is free by then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.reducer import Reducer
from phone_agent.contract.schema import RunSpec
from phone_agent.nn.packing import State
from phone_agent.train import checkpoint, evaluate
from phone_agent.train.optimizers import Optimizer

Array = NDArray[Any]


def is_meeting(spec: RunSpec, step: int) -> bool:
    """Whether all have the same values after this step: they must when somebody looks."""
    return step % spec.communication.local_steps == 0 or evaluate.due(spec, step) or checkpoint.due(spec, step)


def remembered(local_steps: int, outer_momentum: float) -> tuple[str, ...]:
    """Names of what it keeps from step to step, a number a parameter each."""
    return () if local_steps == 1 else ("anchor",) if outer_momentum == 0 else ("anchor", "outer_momenta")


class LocalSgd:
    """In the place of both: sums no gradients, and updates by the optimizer alone, but where all meet.

    `share` is this phone's part of the images of a step; its gradients are those of its own batch.
    """

    def __init__(self, optimizer: Optimizer, reducer: Reducer, state: State, spec: RunSpec, share: float) -> None:
        self._optimizer, self._reducer, self._state, self._spec, self._share = optimizer, reducer, state, spec, share
        self.anchor = state.values.copy()
        self.buffers = dict(optimizer.buffers)
        if spec.communication.outer_momentum:
            self.buffers["outer_momenta"] = np.zeros_like(state.values)

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        """Nothing travels before all meet."""

    def update(self, part: slice, rate: float, step: int) -> None:
        self._optimizer.update(part, rate, step)
        if is_meeting(self._spec, step):
            self._meet(part, step)

    def _meet(self, part: slice, step: int) -> None:
        values, anchor, outer = self._state.values[part], self.anchor[part], self._state.gradients[part]
        np.subtract(anchor, values, out=outer)
        outer *= np.float32(self._share)
        self._reducer.reduce(self._state.gradients, part, step)
        anchor -= np.float32(self._spec.communication.outer_learning_rate) * self._direction(outer, part)
        values[...] = anchor

    def _direction(self, outer: Array, part: slice) -> Array:
        momentum = np.float32(self._spec.communication.outer_momentum)
        if not momentum:
            return outer
        momenta = self.buffers["outer_momenta"][part]
        momenta *= momentum
        momenta += outer
        return np.asarray(outer + momentum * momenta)
