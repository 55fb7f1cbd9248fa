"""The values that named options may take. Both sides use it, and `clusterctl --help`: it imports nothing heavy."""

from __future__ import annotations

from typing import Final, Literal, get_args

Activations = Literal["fp32", "fp16"]
Algorithm = Literal["auto", "ring", "hierarchical", "mpi", "chunkwise"]
Augmentation = Literal["none", "flip", "cifar", "imagenet"]
Backend = Literal["auto", "cpu", "opencl", "hybrid", "reference"]
LoadBalancing = Literal["auto", "off"]
OnCorrupt = Literal["fail", "skip"]
Optimizer = Literal["sgd", "nesterov", "lars", "lamb"]
SchedulePolicy = Literal["constant", "step", "polynomial", "cosine"]
Wire = Literal["auto", "fp32", "fp16", "bf16", "int8", "powersgd"]

AUTO: Final = "auto"  # a backend, an algorithm or a wire format: by measurement
ALGORITHMS: Final = get_args(Algorithm)
BACKENDS: Final = ("cpu", "opencl", "hybrid", "reference")
FP32_ALGORITHMS: Final = frozenset({"mpi", "chunkwise"})  # send fp32 only: MPI does the arithmetic
GPU_BACKENDS: Final = frozenset({"opencl", "hybrid"})
MAX_THREADS: Final = 64  # of one process; as in core/src/core.h
WIRES: Final = get_args(Wire)
