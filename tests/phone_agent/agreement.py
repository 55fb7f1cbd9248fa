"""Differences between two backends on random images."""

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
    """Shift normalized values alternately to 3 and -3, so that few are near the corner of a ReLU.

    A value within rounding of the corner may fall on either side, and everything that depends on it changes. In a deep
    network there always is one. Without `down`, all are shifted to 3: in stacks of depthwise layers a channel that is
    nearly zero stays so, and each batch normalization amplifies its rounding errors.
    """
    for node in graph.nodes:
        if isinstance(node.layer, BatchNorm):
            bias = state.packing.slots[f"{node.name}.bias"].view(state.values)
            bias[0::2] += 3
            bias[1::2] += -3 if down else 3
    return state


def worst_of(ours: State, theirs: State) -> tuple[float, str]:
    """The largest gradient error relative to the largest gradient of its tensor. Tiny tensors count less."""
    got, wanted = ours.packing.views(ours.gradients), theirs.packing.views(theirs.gradients)
    floor = 0.1 * np.abs(theirs.gradients).max()
    errors = {name: np.abs(got[name] - wanted[name]).max() / (np.abs(wanted[name]).max() + floor) for name in wanted}
    return max((float(np.nan_to_num(error, nan=np.inf)), name) for name, error in errors.items())
