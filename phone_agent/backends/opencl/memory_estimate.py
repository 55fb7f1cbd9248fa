"""Memory estimate for OpenCL devices, without a device: builds the launches with uncompiled kernels."""

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

# Assumed limits of an Adreno 640, for planning without a phone. Not measured yet.
ADRENO_640 = Limits("gpu", 2, 1024, 32 * 1024, 900 * 1024 * 1024, 3600 * 1024 * 1024, unified=True)
HYBRID_COPIES = 2  # hybrid: gradients of the GPU, and its copy of the values


def options_for_backend(backend: str, options: Options, shape: Shape, limits: Limits | None = None) -> Options:
    """Options whose plan takes as much memory as this backend, with images of this shape.

    `limits`: of the OpenCL device; None: of the one in this machine.
    """
    if backend not in {"opencl", "hybrid"}:
        return options
    gpu = options_for_device(options, limits or find_device().limits)
    if backend == "opencl":
        return gpu
    workspace = _HybridWorkspace(gpu, options, prod(shape) * FLOAT)
    return replace(options, moments=options.moments + HYBRID_COPIES, workspace=workspace)


def options_for_device(options: Options, limits: Limits) -> Options:
    """Options for a device of these limits: no Winograd, and an arena in segments of the largest allocation."""
    scratch = _ScratchBytes(limits, replace(tiles.default_tiles(limits), **dict(options.tiles)))
    return replace(options, winograd=False, threads=1, segment_bytes=arena_segment_bytes(limits), workspace=scratch)


def arena_segment_bytes(limits: Limits) -> int:
    return limits.allocation_bytes // ALIGNMENT * ALIGNMENT


@dataclass(frozen=True)
class _UncompiledKernels:
    """Kernels of a device that is not in this machine."""

    limits: Limits

    def kernel(self, file: str, name: str, defines: dict[str, Define]) -> Any:
        """Its launches are never bound."""
        del file, defines
        return SimpleNamespace(function_name=name)

    def max_work_group(self, _kernel: Any) -> int:
        return self.limits.work_group


@dataclass(frozen=True)
class _ScratchBytes:
    limits: Limits
    tiles: Tiles

    def __call__(self, ops: Sequence[OpSpec], _batch: int) -> int:
        builder = LaunchBuilder(_UncompiledKernels(self.limits), self.tiles)
        for op in ops:
            build_launches(op, builder)
        return max(FLOAT, builder.scratch_bytes)


@dataclass(frozen=True)
class _HybridWorkspace:
    """Workspace of CPU and GPU, each as if it computed the whole batch, and the image copy of the GPU."""

    gpu: Options
    cpu: Options
    image_bytes: int

    def __call__(self, ops: Sequence[OpSpec], batch: int) -> int:
        scratch = self.gpu.workspace(ops, batch) if self.gpu.workspace else 0
        return scratch + core_workspace_bytes(ops, self.cpu) + batch * self.image_bytes
