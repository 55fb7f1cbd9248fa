"""All parameters in one contiguous buffer, in the order backward finishes their gradients: last layer first.

Packing the gradients for the wire therefore costs no copy, and the optimiser is one pass over a flat array.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent import rng
from phone_agent.nn.graph import Graph, Parameter, Shape

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the buffer."""

    offset: int
    shape: Shape

    def view(self, buffer: NDArray[Any]) -> NDArray[Any]:
        return buffer[self.offset : self.offset + prod(self.shape)].reshape(self.shape)


class Packing:
    """Names ('conv1.weight') to slots of the buffer."""

    def __init__(self, graph: Graph) -> None:
        self.slots: dict[str, Slot] = {}
        self.size = 0
        for name, parameter in backward_order(graph):
            self.slots[name] = Slot(self.size, parameter.shape)
            self.size += parameter.size

    def views(self, buffer: NDArray[Any]) -> Tensors:
        return {name: slot.view(buffer) for name, slot in self.slots.items()}


class State:
    """What training changes: values, their gradients, their momenta; each one buffer, all packed alike."""

    def __init__(self, graph: Graph, seed: int, dtype: DTypeLike = np.float32) -> None:
        self.packing = Packing(graph)
        self.values = initial_values(graph, seed, dtype)
        self.gradients = np.zeros_like(self.values)
        self.momenta = np.zeros_like(self.values)


def backward_order(graph: Graph) -> list[tuple[str, Parameter]]:
    return [
        (f"{node.name}.{parameter.name}", parameter) for node in reversed(graph.nodes) for parameter in node.parameters
    ]


def initial_values(graph: Graph, seed: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Depends on the seed and the graph alone: every phone computes the same bits."""
    pieces = [_initial(parameter, (seed, index)) for index, (_, parameter) in enumerate(backward_order(graph))]
    return np.concatenate([np.zeros(0), *pieces]).astype(dtype)


def _initial(parameter: Parameter, key: tuple[int, ...]) -> NDArray[np.float64]:
    limit = float(np.sqrt(parameter.gain / parameter.fan_in))
    return (2.0 * rng.uniform(key, parameter.size) - 1.0) * limit
