"""Local SGD, for slow links: phones take several steps on their own and synchronize only now and then.

At a synchronization all phones have the same weights (`anchor`). How far each has moved from there is its outer
gradient. The mean of these, weighted by images, is applied as it is, which averages the weights, or with momentum, as
in DiLoCo (Douillard et al., 2023). It is reduced like gradients, in their buffer, which is free by then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.reducer import Reducer
from phone_agent.contract.schema import RunSpec
from phone_agent.nn.packing import State
from phone_agent.train import evaluate
from phone_agent.train.checkpoint_schedule import CheckpointSchedule
from phone_agent.train.optimizers import Optimizer

Array = NDArray[Any]


def is_sync_step(spec: RunSpec, checkpoints: CheckpointSchedule, step: int) -> bool:
    """Whether all phones have the same weights after this step. Evaluation and checkpoints require it as well."""
    return step % spec.communication.local_steps == 0 or evaluate.is_due(spec, step) or checkpoints.is_due(step)


def state_names(local_steps: int, outer_momentum: float) -> tuple[str, ...]:
    """Names of the buffers it keeps from step to step, each with one number per parameter."""
    return () if local_steps == 1 else ("anchor",) if outer_momentum == 0 else ("anchor", "outer_momenta")


class LocalSgd:
    """Stands in for both the reducer and the optimizer: reduces no gradients, and updates by the inner optimizer only,
    except at sync steps.

    `fraction` is this phone's part of the images of a step. Gradients are those of its own batch.
    """

    def __init__(  # noqa: PLR0917 - what it stands in for, and when
        self,
        optimizer: Optimizer,
        reducer: Reducer,
        state: State,
        spec: RunSpec,
        checkpoints: CheckpointSchedule,
        fraction: float,
    ) -> None:
        self._optimizer, self._reducer, self._state, self._spec = optimizer, reducer, state, spec
        self._checkpoints, self._fraction = checkpoints, fraction
        self.anchor = state.values.copy()
        self.buffers = dict(optimizer.buffers)
        if spec.communication.outer_momentum:
            self.buffers["outer_momenta"] = np.zeros_like(state.values)

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        """Nothing is sent before a sync step."""

    def update(self, part: slice, rate: float, step: int) -> None:
        self._optimizer.update(part, rate, step)
        if is_sync_step(self._spec, self._checkpoints, step):
            self._synchronize(part, step)

    def _synchronize(self, part: slice, step: int) -> None:
        values, anchor, outer = self._state.values[part], self.anchor[part], self._state.gradients[part]
        np.subtract(anchor, values, out=outer)
        outer *= np.float32(self._fraction)
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
