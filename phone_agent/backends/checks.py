"""Input validation of executables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State, packing_of

Array = NDArray[Any]


class InputError(AgentError):
    """Images, labels or state that do not match the network."""

    code = ErrorCode.BAD_REQUEST


def check_state(graph: Graph, state: State) -> None:
    size = packing_of(graph).size
    for name, buffer in (("values", state.values), ("gradients", state.gradients)):
        if buffer.dtype != np.float32 or not buffer.flags.c_contiguous:
            raise InputError(f"state.{name} must be contiguous float32, not {buffer.dtype}")
        if buffer.size != size:
            raise InputError(
                f"state.{name} has {buffer.size} elements; the packed parameters of the network have {size}"
            )


def check_batch(graph: Graph, sizes: Collection[int], images: Array, labels: Array) -> None:
    check_images(graph, images)
    if len(images) not in sizes:
        known = " or ".join(map(str, sizes))
        raise InputError(f"batch of {len(images)} images; the network was compiled for {known}")
    if labels.shape != (len(images),):
        raise InputError(f"labels have shape {labels.shape}; expected one integer for each of {len(images)} images")
    if not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"labels are {labels.dtype}; expected integers")
    if labels.min() < 0 or labels.max() >= graph.classes:
        wrong = labels[(labels < 0) | (labels >= graph.classes)][0]
        raise InputError(f"label {wrong}: the network has classes 0 to {graph.classes - 1}")


def check_images(graph: Graph, images: Array) -> None:
    if images.shape[1:] != graph.shape:
        raise InputError(f"images have shape {images.shape[1:]}; the network expects {graph.shape}")
    if images.dtype.kind not in "fiu":
        raise InputError(f"images are {images.dtype}; expected numbers")
