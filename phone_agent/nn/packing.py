"""All parameters in one contiguous buffer, in the order backward finishes their gradients: last layer first.

Packing the gradients for the wire therefore costs no copy, and the optimiser is one pass over a flat array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent import rng
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
    """Names ('conv1.weight') to slots of the buffer."""

    def __init__(self, named: list[tuple[str, Parameter]]) -> None:
        self.slots: dict[str, Slot] = {}
        self.size = 0
        for name, parameter in named:
            self.slots[name] = Slot(self.size, parameter.shape)
            self.size += parameter.size

    def views(self, buffer: NDArray[Any]) -> Tensors:
        return {name: slot.view(buffer) for name, slot in self.slots.items()}


class State:
    """What training changes: values, their gradients, their momenta; each one buffer, all packed alike.

    Running statistics of normalisations are a buffer of their own: they are not learned, and have no gradient.
    """

    def __init__(self, graph: Graph, seed: int, dtype: DTypeLike = np.float32) -> None:
        self.packing = Packing(backward_order(graph))
        self.values = initial_values(backward_order(graph), seed, dtype)
        self.gradients = np.zeros_like(self.values)
        self.momenta = np.zeros_like(self.values)
        self.statistics_packing = Packing(statistics_order(graph))
        self.statistics = initial_values(statistics_order(graph), seed, dtype)

    def move(self, array: Callable[[int], NDArray[Any]]) -> None:
        """To memory that a backend computes in, so that nothing is copied for it. Before anyone else holds it."""
        for name in ("values", "gradients", "statistics"):
            here = getattr(self, name)
            there = array(here.size)
            there[...] = here
            setattr(self, name, there)


def backward_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [
        (f"{node.name}.{parameter.name}", parameter) for node in reversed(graph.nodes) for parameter in node.parameters
    ]


def statistics_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [(f"{node.name}.{kept.name}", kept) for node in graph.nodes for kept in node.statistics]


def initial_values(named: list[tuple[str, Parameter]], seed: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Depends on the seed and the graph alone: every phone computes the same bits."""
    values = np.empty(sum(parameter.size for _, parameter in named), dtype)
    start = 0
    for index, (_, parameter) in enumerate(named):
        _start(parameter, (seed, index), values[start : start + parameter.size])
        start += parameter.size
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
