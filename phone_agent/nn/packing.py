"""All parameters in one contiguous buffer, in the order backward finishes their gradients: last layer first.

Packing the gradients for the wire therefore costs no copy, and the optimizer is one pass over a flat array. What is
frozen lies behind all that learns, and has no part in either.
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
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.graph import Graph, Parameter, Shape

Tensors = dict[str, NDArray[Any]]
BLOCK = 1 << 15


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the buffer."""

    offset: int
    shape: Shape

    def view(self, buffer: NDArray[Any]) -> NDArray[Any]:
        return buffer[self.offset : self.offset + prod(self.shape)].reshape(self.shape)


class Packing:
    """Names ('conv1.weight') to slots of the buffer. Its first `learned` values are not frozen; all others are."""

    def __init__(self, named: list[tuple[str, Parameter]], frozen: Collection[str] = ()) -> None:
        self.slots: dict[str, Slot] = {}
        self.size = 0
        for name, parameter in sorted(named, key=lambda each: each[0] in frozen):
            self.slots[name] = Slot(self.size, parameter.shape)
            self.size += parameter.size
        self.trainable_size = self.size - sum(parameter.size for name, parameter in named if name in frozen)

    def repack(self, buffer: NDArray[Any], order: Sequence[str]) -> NDArray[Any]:
        """What was packed in that order of names, in this one: another choice of what is frozen has another."""
        if list(order) == list(self.slots):
            return buffer
        if sorted(order) != sorted(self.slots):
            raise AgentError(
                "these numbers are of other parameters than the network has", code=ErrorCode.INTERNAL_ERROR
            )
        ends = accumulate(prod(self.slots[name].shape) for name in order)
        there = dict(zip(order, np.split(buffer, list(ends)[:-1]), strict=True))
        return np.concatenate([there[name] for name in self.slots])

    def views(self, buffer: NDArray[Any]) -> Tensors:
        return {name: slot.view(buffer) for name, slot in self.slots.items()}


class State:
    """What training changes: values, their gradients, their momenta; each one buffer, all packed alike.

    Running statistics of normalisations are a buffer of their own: they are not learned, and have no gradient.
    """

    def __init__(self, graph: Graph, seed: int, dtype: DTypeLike = np.float32) -> None:
        self.packing = packing_of(graph)
        self.values = initial_values(backward_order(graph), self.packing, seed, dtype)
        self.gradients = np.zeros_like(self.values)
        self.momenta = np.zeros_like(self.values)
        self.statistics_packing = Packing(statistics_order(graph))
        self.statistics = initial_values(statistics_order(graph), self.statistics_packing, seed, dtype)

    def move(self, array: Callable[[int], NDArray[Any]]) -> None:
        """To memory that a backend computes in, so that nothing is copied for it. Before anyone else holds it."""
        for name in ("values", "gradients", "statistics"):
            self.place(name, array(getattr(self, name).size))

    def place(self, name: str, there: NDArray[Any], *, keep_contents: bool = False) -> None:
        """Use `there` as the buffer `name` from now on. Copies the old contents unless `keep_contents`."""
        if not keep_contents:
            there[...] = getattr(self, name)
        setattr(self, name, there)


def packing_of(graph: Graph) -> Packing:
    return Packing(backward_order(graph), graph.frozen)


def backward_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [
        (f"{node.name}.{parameter.name}", parameter) for node in reversed(graph.nodes) for parameter in node.parameters
    ]


def statistics_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [(f"{node.name}.{kept.name}", kept) for node in graph.nodes for kept in node.statistics]


def initial_values(
    named: list[tuple[str, Parameter]], packing: Packing, seed: int, dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Depends on the seed and the graph alone, wherever each lies: every phone computes the same bits."""
    values = np.empty(packing.size, dtype)
    for index, (name, parameter) in enumerate(named):
        _start(parameter, (seed, index), packing.slots[name].view(values).reshape(-1))
    return values


def _start(parameter: Parameter, key: tuple[int, ...], values: NDArray[Any]) -> None:
    """In double precision, a block at a time: the largest layers have as many values as would fill a phone's memory."""
    values[...] = parameter.middle
    if parameter.gain == 0.0:
        return
    limit = math.sqrt(parameter.gain / parameter.fan)
    for start in range(0, parameter.size, BLOCK):
        block = values[start : start + BLOCK]
        block += (2.0 * rng.uniform(key, len(block), start) - 1.0) * limit
