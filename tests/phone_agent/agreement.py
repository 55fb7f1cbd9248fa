"""How far two backends are apart, on images at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.nn.graph import BatchNorm, Graph
from phone_agent.nn.packing import State

Array = NDArray[Any]


def batch_of(graph: Graph, batch: int, seed: int = 3) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 1, (batch, *graph.shape)).astype(np.float32)
    return images, rng.integers(0, graph.classes, batch)


def leave_corners(graph: Graph, state: State, *, down: bool = True) -> State:
    """Moves normalised values to 3 and -3 by turns, where few are near a ReLU's corner, but some on its other side.

    A value within rounding of a corner may fall on its other side, and then all that hangs on it differs: the gradient
    itself jumps there. In a deep network some value always is. Not `down`: all to 3, for stacks of depthwise layers. A
    channel that is nearly all zero stays alone there, and each normalisation makes more of what rounding left of it.
    """
    for node in graph.nodes:
        if isinstance(node.layer, BatchNorm):
            bias = state.packing.slots[f"{node.name}.bias"].view(state.values)
            bias[0::2] += 3
            bias[1::2] += -3 if down else 3
    return state


def worst_of(ours: State, theirs: State) -> tuple[float, str]:
    """The largest error of a gradient, of the largest of its tensor; tensors of next to nothing count less."""
    got, wanted = ours.packing.views(ours.gradients), theirs.packing.views(theirs.gradients)
    floor = 0.1 * np.abs(theirs.gradients).max()
    errors = {name: np.abs(got[name] - wanted[name]).max() / (np.abs(wanted[name]).max() + floor) for name in wanted}
    return max((float(np.nan_to_num(error, nan=np.inf)), name) for name, error in errors.items())
