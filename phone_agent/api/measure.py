"""Measurements: benchmarks on this computer; LINPACK, the device study and the self-test of phones."""

from __future__ import annotations

from phone_agent.bench.compute import (
    ComputeRequest,
    ComputeResult,
    FailedError,
    OperationTime,
    measure_compute,
    usable_threads,
)
from phone_agent.bench.kernels import KernelResult, Machine, measure_kernels, measure_machine
from phone_agent.device_study.networks import build as build_study_network
from phone_agent.device_study.networks import three_pass_flops
from phone_agent.linpack.matrix import DEFAULT_BLOCK, Grid, System, TooLargeError, check_fits, default_n, largest_n
from phone_agent.selftest.assumptions import checks
