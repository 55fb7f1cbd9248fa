"""Who computes. A backend compiles a graph once for a batch size; training then only calls the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State

if TYPE_CHECKING:
    from phone_agent.nn.plan.ops import Step

Ready = Callable[[int, int], None]  # gradients[start:end] are complete, and values[start:end] not read any more
Need = Callable[[int, int], None]  # values[start:end] are about to be read
Workspace = Callable[["Sequence[Step]", int], int]  # bytes that steps of a batch of this size take beside their buffers


class Executable(Protocol):
    def prepare(self, sizes: Collection[int]) -> None:
        """For batches of these sizes as well, none larger than the one it was compiled for."""
        ...

    def forward(self, images: NDArray[Any]) -> NDArray[Any]:
        """Class scores, one row an image, any number of them. As in use: running statistics, nothing dropped."""
        ...

    def loss_and_gradients(
        self,
        images: NDArray[Any],
        labels: NDArray[Any],
        weight: float,
        draw: int = 0,
        *,
        ready: Ready | None = None,
        need: Need | None = None,
        accumulate: bool = False,
    ) -> float:
        """The batch's mean cross-entropy, not weighted. Fills `state.gradients` with the gradient of weight x mean.

        `draw` decides what dropout drops. `ready` is told each part of the gradients as backward completes it, from
        the front of the buffer to its end; `need` each part of the values before forward reads it, and may wait.
        The parts are those of nn.plan.buckets. With `accumulate` the gradients are added to those that are there.
        """
        ...


@dataclass(frozen=True)
class Options:
    """How to compile. But for `label_smoothing`, nothing here changes what is computed beyond rounding."""

    threads: int = 1
    isa: str | None = None  # the best there is
    memory_bytes: int | None = None  # recompute as much as it takes to fit
    winograd: bool = True
    bucket_bytes: int = 4 * 1024 * 1024  # `ready` is called for parts of about this size
    moments: int = 1  # numbers a parameter that training keeps besides value and gradient
    label_smoothing: float = 0.0  # the part of the truth that is all classes alike
    piece_bytes: int | None = None  # no buffer crosses a multiple of this: the most that is had at once
    half: bool = False  # activations are stored in fp16, and computed with in fp32
    tiles: tuple[tuple[str, int], ...] = ()  # OpenCL: numbers of opencl.tiles.Tiles, where not the device's usual ones
    workspace: Workspace | None = None  # of whoever runs the plan; None: of the core
    gpu_share: float | None = None  # hybrid: the part of each batch that the GPU computes; None: by measurement


class Backend(Protocol):
    def array(self, count: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Zeroed memory that this backend computes in. It computes with any other, too, but may have to copy it."""
        ...

    def compile(self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()) -> Executable:
        """For training with batches of `batch` images and of those sizes in `also`, none larger."""
        ...


NAMES = ("cpu", "opencl", "hybrid", "reference")


def backend(name: str) -> Backend:
    if name == "cpu":
        from phone_agent.backends.cpu import CpuBackend

        return CpuBackend()
    if name == "opencl":
        from phone_agent.backends.opencl.backend import OpenClBackend

        return OpenClBackend()
    if name == "hybrid":
        from phone_agent.backends.hybrid import HybridBackend

        return HybridBackend(backend("cpu"), backend("opencl"))
    if name == "reference":
        from phone_agent.backends.reference import ReferenceBackend

        return ReferenceBackend()
    raise AgentError(f"there is no backend called '{name}'; there are: {', '.join(NAMES)}", code=ErrorCode.BAD_REQUEST)
