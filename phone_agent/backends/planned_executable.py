"""Base class of executables that run a plan: one program per batch size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from phone_agent.backends.checks import InputError, check_images, check_state
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import MemoryPlan, fit_plan, memory_of
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import Plan

Array = NDArray[Any]
Program = TypeVar("Program")
MAX_PLANS = 8  # batch sizes whose programs are cached


@dataclass(frozen=True)
class OpTime:
    """Profile of one op of the plan. `bytes`: activations read and written, each tensor once."""

    name: str
    kind: str
    direction: str
    seconds: float
    flops: int
    bytes: int


class PlannedExecutable(Executable, Generic[Program]):
    """`_programs` holds one program per batch size. Subclasses create them and the memory they run in."""

    def __init__(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int]) -> None:
        check_state(graph, state)
        self._graph, self._state, self._batch, self._options = graph, state, batch, options
        self._plans = {size: fit_plan(graph, size, options) for size in (batch, *also)}
        self._plan = self._plans[batch]
        self.memory: MemoryPlan = memory_of(graph, self._plan)
        self._programs: dict[int, Program] = {}

    def prepare(self, sizes: Collection[int]) -> None:
        """Recently used sizes are cached."""
        if largest := [size for size in sizes if size > self._batch]:
            raise InputError(f"batch of {max(largest)}: the network was compiled for at most {self._batch}")
        new = {size: fit_plan(self._graph, size, self._options) for size in sizes if size not in self._plans}
        keep = {self._batch, *sizes}
        others = [size for size in self._plans if size not in keep]
        for size in others[: max(0, len(self._plans) + len(new) - MAX_PLANS)]:
            del self._plans[size], self._programs[size]
        self._plans |= new
        self._add(new)

    def forward(self, images: Array) -> Array:
        check_images(self._graph, images)
        scores = np.empty((len(images), self._graph.classes), np.float32)
        for start in range(0, len(images), self._batch):
            chunk = images[start : start + self._batch]
            scores[start : start + len(chunk)] = self._evaluate(chunk)[: len(chunk)]
        return scores

    def _op_times(self, nanoseconds: Sequence[int]) -> list[OpTime]:
        """Profile of the training ops with the largest batch."""
        ops = self._plan.training.ops
        return [
            OpTime(op.name, op.kind.name.lower(), op.direction.value, time * 1e-9, op.flops, op.traffic)
            for op, time in zip(ops, nanoseconds, strict=True)
        ]

    @abstractmethod
    def _add(self, plans: dict[int, Plan]) -> None:
        """Create programs for these sizes, and grow the memory if needed.

        A smaller batch may need a little more: it recomputes less, or uses another algorithm.
        """

    @abstractmethod
    def _evaluate(self, images: Array) -> Array:
        """Scores of at most as many images as the largest batch. Rows beyond the images are undefined."""


def is_readable_in_place(images: Array, batch: int) -> bool:
    """Whether kernels can read these images without a copy."""
    return images.dtype == np.float32 and images.flags.c_contiguous and len(images) == batch
