"""What a plan takes on an OpenCL device, before one is asked: launches are made, of kernels that nobody compiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import Any

from phone_agent.backends.opencl import tiles
from phone_agent.backends.opencl.device import Limits, find_device
from phone_agent.backends.opencl.emit import LaunchBuilder
from phone_agent.backends.opencl.launches import build_launches
from phone_agent.backends.opencl.program import Define
from phone_agent.backends.opencl.tiles import Tiles
from phone_agent.nn.graph import Shape
from phone_agent.nn.plan.arena import ALIGNMENT
from phone_agent.nn.plan.ops import FLOAT, OpSpec
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import core_workspace_bytes

# What is assumed of an Adreno 640, for who plans without a phone to ask: nobody has asked one yet.
ADRENO_640 = Limits("gpu", 2, 1024, 32 * 1024, 900 * 1024 * 1024, 3600 * 1024 * 1024, unified=True)
HYBRID_COPIES = 2  # the GPU's own gradients, and its copy of the values, where the processor computes beside it


def options_for_backend(backend: str, options: Options, shape: Shape, limits: Limits | None = None) -> Options:
    """The options whose plan takes the memory that this backend takes with images of this shape. On a device of these
    limits; without any, on the one that is here."""
    if backend not in {"opencl", "hybrid"}:
        return options
    gpu = options_for_device(options, limits or find_device().limits)
    if backend == "opencl":
        return gpu
    both = _Both(gpu, options, prod(shape) * FLOAT)
    return replace(options, moments=options.moments + HYBRID_COPIES, workspace=both)


def options_for_device(options: Options, limits: Limits) -> Options:
    """As a device of these limits runs a plan: kernels gather for themselves, and nothing lies in two pieces."""
    scratch = _Scratch(limits, replace(tiles.default_tiles(limits), **dict(options.tiles)))
    return replace(options, winograd=False, threads=1, segment_bytes=arena_segment_bytes(limits), workspace=scratch)


def arena_segment_bytes(limits: Limits) -> int:
    return limits.allocation_bytes // ALIGNMENT * ALIGNMENT


@dataclass(frozen=True)
class _Unbuilt:
    """Kernels of a device that is not here."""

    limits: Limits

    def kernel(self, file: str, name: str, defines: dict[str, Define]) -> Any:
        """No launch of it is ever bound."""
        del file, defines
        return SimpleNamespace(function_name=name)

    def most_items(self, _kernel: Any) -> int:
        return self.limits.work_group


@dataclass(frozen=True)
class _Scratch:
    limits: Limits
    tiles: Tiles

    def __call__(self, steps: Sequence[OpSpec], _batch: int) -> int:
        maker = LaunchBuilder(_Unbuilt(self.limits), self.tiles)
        for step in steps:
            build_launches(step, maker)
        return max(FLOAT, maker.scratch_bytes)


@dataclass(frozen=True)
class _Both:
    """Of the processor and of the GPU, each as if the batch were its own; and the GPU's copy of images."""

    gpu: Options
    cpu: Options
    image_bytes: int

    def __call__(self, steps: Sequence[OpSpec], batch: int) -> int:
        scratch = self.gpu.workspace(steps, batch) if self.gpu.workspace else 0
        return scratch + core_workspace_bytes(steps, self.cpu) + batch * self.image_bytes
