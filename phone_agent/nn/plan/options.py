"""Compile options: how a backend compiles a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phone_agent.nn.plan.ops import OpSpec

Workspace = Callable[[Sequence[OpSpec], int], int]  # scratch bytes of these ops at this batch size


@dataclass(frozen=True)
class Options:
    """Except for `label_smoothing`, no option changes the result beyond rounding."""

    threads: int = 1
    isa: str | None = None  # None: the best that the processor supports
    memory_bytes: int | None = None  # budget: layers are recomputed as far as needed to fit
    winograd: bool = True
    bucket_bytes: int = 4 * 1024 * 1024  # approximate size of the gradient buckets passed to `ready`
    moments: int = 1  # optimizer state: floats per parameter besides value and gradient
    label_smoothing: float = 0.0
    segment_bytes: int | None = None  # the arena is allocated in segments of this size, and no buffer spans two
    half: bool = False  # store activations in fp16; arithmetic stays in fp32
    tiles: tuple[tuple[str, int], ...] = ()  # OpenCL: fields of opencl.tiles.Tiles that differ from the defaults
    workspace: Workspace | None = None  # scratch memory of the backend that runs the plan; None: of the core
    gpu_share: float | None = None  # hybrid: fraction of each batch that the GPU computes; None: measure it
