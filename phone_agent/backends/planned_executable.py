"""What executables of a plan have in common: the sizes of batches they keep programs for, and what they refuse."""

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
MAX_PLANS = 8  # of batches that programs are kept for


@dataclass(frozen=True)
class OpTime:
    """What one step of the plan took, and what it did in that time. `bytes`: activations, each tensor once."""

    name: str
    kind: str
    direction: str
    seconds: float
    flops: int
    bytes: int


class PlannedExecutable(Executable, Generic[Program]):
    """`_programs` holds one for each size of batch; whoever inherits makes them, and the memory they run in."""

    def __init__(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int]) -> None:
        check_state(graph, state)
        self._graph, self._state, self._batch, self._options = graph, state, batch, options
        self._plans = {size: fit_plan(graph, size, options) for size in (batch, *also)}
        self._plan = self._plans[batch]
        self.memory: MemoryPlan = memory_of(graph, self._plan)
        self._programs: dict[int, Program] = {}

    def prepare(self, sizes: Collection[int]) -> None:
        """Sizes that were used before come back at once, as long as they are not many."""
        if largest := [size for size in sizes if size > self._batch]:
            raise InputError(f"a batch of {max(largest)}: the network was compiled for {self._batch} at most")
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

    def _step_times(self, nanoseconds: Sequence[int]) -> list[OpTime]:
        """Of the steps of training with the largest batch."""
        steps = self._plan.training.ops
        return [
            OpTime(step.name, step.kind.name.lower(), step.direction.value, time * 1e-9, step.flops, step.traffic)
            for step, time in zip(steps, nanoseconds, strict=True)
        ]

    @abstractmethod
    def _add(self, plans: dict[int, Plan]) -> None:
        """Programs for these sizes as well, and room for them: a smaller batch may take a little more. It recomputes
        less, or another kernel suits it."""

    @abstractmethod
    def _evaluate(self, images: Array) -> Array:
        """Scores of no more images than the largest batch has; rows beyond them mean nothing."""


def is_readable_in_place(images: Array, batch: int) -> bool:
    """Whether kernels can read these where they are."""
    return images.dtype == np.float32 and images.flags.c_contiguous and len(images) == batch
