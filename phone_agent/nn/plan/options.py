"""How a backend compiles a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phone_agent.nn.plan.ops import OpSpec

Workspace = Callable[[Sequence[OpSpec], int], int]  # scratch bytes of these steps at this batch size


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
