"""Backend and executable interfaces: a backend compiles a graph once per batch size; training calls the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options

# gradients[start:end] are complete, and values[start:end] are no longer read
GradientsReady = Callable[[int, int], None]
ValuesNeeded = Callable[[int, int], None]  # values[start:end] are about to be read


@dataclass(frozen=True)
class GradientRequest:
    """One call of `Executable.loss_and_gradients`, as a backend receives it."""

    images: NDArray[Any]
    labels: NDArray[Any]
    weight: float
    draw: int = 0
    ready: GradientsReady | None = None
    need: ValuesNeeded | None = None
    accumulate: bool = False


class Executable(ABC):
    @abstractmethod
    def prepare(self, sizes: Collection[int]) -> None:
        """Compile for batches of these sizes as well, none larger than the one it was compiled for."""

    @abstractmethod
    def forward(self, images: NDArray[Any]) -> NDArray[Any]:
        """Class scores, one row per image, for any number of images. Inference mode: running statistics, no dropout."""

    def loss_and_gradients(
        self,
        images: NDArray[Any],
        labels: NDArray[Any],
        weight: float,
        draw: int = 0,
        *,
        ready: GradientsReady | None = None,
        need: ValuesNeeded | None = None,
        accumulate: bool = False,
    ) -> float:
        """The unweighted mean cross-entropy of the batch. Fills `state.gradients` with the gradient of weight x mean.

        `draw` seeds dropout. `ready` is called for each part of the gradients as backward completes it, from the front
        of the buffer to its end; `need` for each part of the values before forward reads it, and may block. The parts
        are those of nn.plan.buckets. With `accumulate`, gradients are added to those already there.
        """
        return self.compute_gradients(GradientRequest(images, labels, weight, draw, ready, need, accumulate))

    @abstractmethod
    def compute_gradients(self, request: GradientRequest) -> float:
        """What a backend implements; callers use `loss_and_gradients`."""


class Backend(Protocol):
    def array(self, count: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Zeroed memory that this backend computes in. Other memory works as well, but may have to be copied."""
        ...

    def compile(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()) -> Executable:
        """Compile for batches of `batch` images, and for the smaller sizes in `also`."""
        ...
