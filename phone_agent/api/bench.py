"""Compute and kernel benchmarks on this computer."""

from __future__ import annotations

from phone_agent.bench.compute import (
    ComputeRequest,
    ComputeResult,
    FailedError,
    TimeShare,
    measure_compute,
    usable_threads,
)
from phone_agent.bench.kernels import KernelResult, Machine, measure_kernels, measure_machine

__all__ = [
    "ComputeRequest",
    "ComputeResult",
    "FailedError",
    "KernelResult",
    "Machine",
    "TimeShare",
    "measure_compute",
    "measure_kernels",
    "measure_machine",
    "usable_threads",
]
