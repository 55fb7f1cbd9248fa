"""Base class of executables that run a plan: one program per batch size. Validation of their inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import BadRequestError
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State, packing_of
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
            raise BadRequestError(f"batch of {max(largest)}: the network was compiled for at most {self._batch}")
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


def check_state(graph: Graph, state: State) -> None:
    size = packing_of(graph).size
    for name, buffer in (("values", state.values), ("gradients", state.gradients)):
        if buffer.dtype != np.float32 or not buffer.flags.c_contiguous:
            raise BadRequestError(f"state.{name} must be contiguous float32, not {buffer.dtype}")
        if buffer.size != size:
            raise BadRequestError(
                f"state.{name} has {buffer.size} elements; the packed parameters of the network have {size}"
            )


def check_batch(graph: Graph, sizes: Collection[int], images: Array, labels: Array) -> None:
    check_images(graph, images)
    if len(images) not in sizes:
        known = " or ".join(map(str, sizes))
        raise BadRequestError(f"batch of {len(images)} images; the network was compiled for {known}")
    if labels.shape != (len(images),):
        raise BadRequestError(
            f"labels have shape {labels.shape}; expected one integer for each of {len(images)} images"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise BadRequestError(f"labels are {labels.dtype}; expected integers")
    if labels.min() < 0 or labels.max() >= graph.classes:
        wrong = labels[(labels < 0) | (labels >= graph.classes)][0]
        raise BadRequestError(f"label {wrong}: the network has classes 0 to {graph.classes - 1}")


def check_images(graph: Graph, images: Array) -> None:
    if images.shape[1:] != graph.shape:
        raise BadRequestError(f"images have shape {images.shape[1:]}; the network expects {graph.shape}")
    if images.dtype.kind not in "fiu":
        raise BadRequestError(f"images are {images.dtype}; expected numbers")
