"""The values that named options may take, for both sides. Imports nothing, so that the command line can use it."""

from __future__ import annotations

BACKENDS = ("cpu", "opencl", "hybrid", "reference")
GPU_BACKENDS = frozenset({"opencl", "hybrid"})
AUTO = "auto"  # a backend, an algorithm or a wire format: by measurement
AUGMENTATIONS = ("none", "flip", "cifar", "imagenet")
MAX_THREADS = 64  # of one process; as in core/src/core.h
