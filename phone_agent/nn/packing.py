"""Parameter packing: all parameters in one contiguous buffer, in the order backward completes their gradients.

So packing gradients for the wire costs no copy, and the optimizer is one pass over a flat array. Frozen parameters come
after all trainable ones and take part in neither. Every parameter is padded to whole cache lines, so that buckets never
share one: the host may send a bucket while a device writes the next. The padding is zero, and so are its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.contract import rng
from phone_agent.contract.errors import InternalError
from phone_agent.nn.graph import Graph, Parameter, Shape

Tensors = dict[str, NDArray[Any]]
BLOCK = 1 << 15
ALIGNMENT = 32  # floats: 128 bytes, the largest cache line and sub-buffer alignment of phones


@dataclass(frozen=True)
class Slot:
    """The place of one parameter in the buffer. `end`: with its padding."""

    offset: int
    end: int
    shape: Shape

    def view(self, buffer: NDArray[Any]) -> NDArray[Any]:
        return buffer[self.offset : self.offset + prod(self.shape)].reshape(self.shape)


class Packing:
    """Slots by parameter name ('conv1.weight'). The first `trainable_size` elements are trainable, the rest frozen.

    Every slot begins at a multiple of `alignment` elements.
    """

    def __init__(self, named: list[tuple[str, Parameter]], frozen: Collection[str] = (), *, alignment: int = 1) -> None:
        self.slots: dict[str, Slot] = {}
        self.size = 0
        for name, parameter in sorted(named, key=lambda each: each[0] in frozen):
            end = self.size + -(-parameter.size // alignment) * alignment
            self.slots[name] = Slot(self.size, end, parameter.shape)
            self.size = end
        self.trainable_size = min((self.slots[name].offset for name, _ in named if name in frozen), default=self.size)

    def repack(self, buffer: NDArray[Any], order: Sequence[str]) -> NDArray[Any]:
        """Reorder a buffer that was packed in another order of names, as with other frozen parameters."""
        if list(order) == list(self.slots):
            return buffer
        if sorted(order) != sorted(self.slots):
            raise InternalError("the buffer does not match the network's parameters")
        ends = accumulate(self.slots[name].end - self.slots[name].offset for name in order)
        there = dict(zip(order, np.split(buffer, list(ends)[:-1]), strict=True))
        return np.concatenate([there[name] for name in self.slots])

    def views(self, buffer: NDArray[Any]) -> Tensors:
        return {name: slot.view(buffer) for name, slot in self.slots.items()}


class State:
    """Training state: parameter values, gradients and momenta, each in one buffer with the same packing.

    Running statistics are a separate buffer: they are not trained and have no gradients.
    """

    def __init__(self, graph: Graph, seed: int, dtype: DTypeLike = np.float32) -> None:
        self.packing = packing_of(graph)
        self.values = initial_values(backward_order(graph), self.packing, seed, dtype)
        self.gradients = np.zeros_like(self.values)
        self.momenta = np.zeros_like(self.values)
        self.statistics_packing = Packing(statistics_order(graph))
        self.statistics = initial_values(statistics_order(graph), self.statistics_packing, seed, dtype)

    def move(self, array: Callable[[int], NDArray[Any]]) -> None:
        """Move to memory that a backend computes in, to avoid copies. Call before anything refers to the buffers."""
        for name in ("values", "gradients", "statistics"):
            self.place(name, array(getattr(self, name).size))

    def place(self, name: str, there: NDArray[Any], *, keep_contents: bool = False) -> None:
        """Use `there` as the buffer `name` from now on. Copies the old contents unless `keep_contents`."""
        if not keep_contents:
            there[...] = getattr(self, name)
        setattr(self, name, there)


def packing_of(graph: Graph) -> Packing:
    return Packing(backward_order(graph), graph.frozen, alignment=ALIGNMENT)


def backward_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [
        (f"{node.name}.{parameter.name}", parameter) for node in reversed(graph.nodes) for parameter in node.parameters
    ]


def statistics_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [(f"{node.name}.{statistic.name}", statistic) for node in graph.nodes for statistic in node.statistics]


def initial_values(
    named: list[tuple[str, Parameter]], packing: Packing, seed: int, dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Depends only on the seed and the graph, not on the packing: every phone computes the same bits."""
    values = np.zeros(packing.size, dtype)
    for index, (name, parameter) in enumerate(named):
        _initialize(parameter, (seed, index), packing.slots[name].view(values).reshape(-1))
    return values


def _initialize(parameter: Parameter, key: tuple[int, ...], values: NDArray[Any]) -> None:
    """In double precision, block by block: the largest layers would not fit into the memory of a phone at once."""
    values[...] = parameter.center
    if parameter.gain == 0.0:
        return
    limit = math.sqrt(parameter.gain / parameter.fan)
    for start in range(0, parameter.size, BLOCK):
        block = values[start : start + BLOCK]
        block += (2.0 * rng.uniform(key, len(block), start) - 1.0) * limit
