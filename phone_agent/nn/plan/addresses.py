"""Symbolic addresses of parameters, gradients, statistics, per-channel vectors and per-step inputs and outputs."""

from __future__ import annotations

from phone_agent.core.ops import DType
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import Packing, packing_of, statistics_order
from phone_agent.nn.plan.fuse import pad_to_cache_line
from phone_agent.nn.plan.lowered_graph import LoweredGraph, Norm, Storage, Value
from phone_agent.nn.plan.ops import DOUBLE, FLOAT, Buffer, Field, MemorySpace, Pointer, SharedStruct, TensorView

LOSS, WEIGHT, DRAW, LABELS = 0, 8, 16, 64  # byte offsets in the step_io buffer


class Addresses:
    """`half`: activations are stored in fp16, except for the images and the scores."""

    def __init__(
        self,
        graph: Graph,
        lowered: LoweredGraph,
        batch: int,
        threads: int,
        smoothing: float = 0.0,
        *,
        half: bool = False,
    ) -> None:
        self.batch, self.smoothing = batch, smoothing
        self._half = half
        self._always_fp32 = {lowered.image.storage, lowered.scores.storage}
        self._threads = threads
        self._slots = packing_of(graph).slots
        self._statistic_slots = Packing(statistics_order(graph)).slots
        image = lowered.image
        self._images = Buffer("images", batch * image.pixels * image.channels * FLOAT, MemorySpace.IMAGES)
        self._step_io = Buffer("step_io", LABELS + batch * FLOAT, MemorySpace.STEP_IO)
        self._values = Buffer("values", 0, MemorySpace.VALUES)
        self._gradients = Buffer("gradients", 0, MemorySpace.GRADIENTS)
        self._statistics = Buffer("statistics", 0, MemorySpace.STATISTICS)
        self._vectors = Buffer("vectors", lowered.vector_floats * FLOAT, MemorySpace.VECTORS)

    def images(self) -> Buffer:
        return self._images

    def dtype(self, storage: Storage) -> DType:
        return DType.FP16 if self._half and storage not in self._always_fp32 else DType.FP32

    def step_io(self, offset: int) -> Pointer:
        return Pointer(self._step_io, offset)

    def parameter(self, name: str) -> Pointer:
        return Pointer(self._values, self._slots[name].offset * FLOAT)

    def gradient(self, name: str) -> Pointer:
        return Pointer(self._gradients, self._slots[name].offset * FLOAT)

    def fused_input(self, value: Value, view: TensorView) -> dict[str, Field]:
        """The core struct `FusedInput`: how an op reads this value."""
        fields: dict[str, Field] = {"data": view.pointer, "ld": view.ld, "dtype": view.dtype}
        if value.affine is not None:
            at = value.affine.offset + value.affine_start
            fields |= {"scale": self._vector(at), "shift": self._vector(at + pad_to_cache_line(value.affine.channels))}
            fields["act"] = value.act
        return fields

    def norm(self, norm: Norm, *, sums: bool = True) -> SharedStruct:
        """The core struct `BatchNorm`, with its own scratch buffer for sums."""
        name, layer = norm.name, norm.layer
        at = norm.affine.offset + norm.start
        scratch = Pointer(Buffer(f"{name} sums", self._threads * 2 * norm.channels * DOUBLE)) if sums else None
        return SharedStruct(
            {
                "gamma": self.parameter(f"{name}.weight"),
                "beta": self.parameter(f"{name}.bias"),
                "running_mean": self._statistic(f"{name}.running_mean"),
                "running_var": self._statistic(f"{name}.running_var"),
                "mean": self._vector(norm.offset),
                "inv_std": self._vector(norm.offset + pad_to_cache_line(norm.channels)),
                "scale": self._vector(at),
                "shift": self._vector(at + pad_to_cache_line(norm.affine.channels)),
                "dgamma": self.gradient(f"{name}.weight"),
                "dbeta": self.gradient(f"{name}.bias"),
                "sums": scratch,
                "epsilon": layer.epsilon,
                "momentum": layer.momentum,
                "channels": norm.channels,
            }
        )

    def _vector(self, offset: int) -> Pointer:
        return Pointer(self._vectors, offset * FLOAT)

    def _statistic(self, name: str) -> Pointer:
        return Pointer(self._statistics, self._statistic_slots[name].offset * FLOAT)
