"""`clusterctl bench kernels`: each kernel alone, relative to the peak of the processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from phone_agent.bench.cases import Case, all_cases, names
from phone_agent.contract.errors import BadRequestError
from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool, aligned, workspace_bytes
from phone_agent.device.step_timer import time_steps

COPY_FLOATS = 64 * 1024 * 1024  # beyond any cache


@dataclass(frozen=True)
class Machine:
    """Peak compute and memory speed of this machine."""

    isa: str
    threads: int
    peak_gflops: float  # fused multiply-adds in registers
    copy_gbs: float  # numpy's copy of memory too large for the caches, reads and writes counted, one thread


@dataclass(frozen=True)
class KernelResult:
    """One kernel on one shape; the best of its runs."""

    name: str
    shape: str
    seconds: float
    gflops: float | None
    peak_fraction: float | None
    gbs: float


def measure_machine(threads: int, isa: str | None = None, seconds: float = 0.2) -> Machine:
    with closing(ThreadPool(threads, isa)) as pool:
        return Machine(pool.isa, threads, peak_gflops(pool, seconds), copy_gbs())


def measure_kernels(machine: Machine, only: str = "", seconds: float = 0.2) -> Iterator[KernelResult]:
    """Measures the kernels with `only` in their name."""
    if not any(only in name for name in names()):
        raise BadRequestError(f"no kernel name contains '{only}'; choose from: {', '.join(names())}")
    for case in all_cases(machine.threads, only):
        taken = best_seconds(case, machine.threads, machine.isa, seconds)
        gflops = case.flops / taken / 1e9 if case.flops else None
        share = gflops / machine.peak_gflops if gflops else None
        yield KernelResult(case.name, case.shape, taken, gflops, share, case.bytes / taken / 1e9)


def best_seconds(
    case: Case, threads: int, isa: str | None, seconds: float, now: Callable[[], float] = time.perf_counter
) -> float:
    """Of as many runs as fit into `seconds`; at least three."""
    made = [(case.kind, case.op)]
    with closing(ThreadPool(threads, isa, workspace_bytes(threads, made, isa))) as pool:
        return _best(pool, Program.of(made), seconds, now)


def peak_gflops(pool: ThreadPool, seconds: float = 0.2, *, in_double: bool = False) -> float:
    """All threads together; in single precision, or in double."""
    flops = aligned(1, np.float64)
    op = ops.FmaPeak(flops=flops.ctypes.data, count=300_000, in_double=int(in_double))
    best = _best(pool, Program.of([(ops.Kind.FMA_PEAK, op)]), seconds)
    return float(flops[0]) * pool.threads / best / 1e9


def copy_gbs(rounds: int = 3, floats: int = COPY_FLOATS) -> float:
    source, target = np.ones(floats, np.float32), np.empty(floats, np.float32)
    seconds = time_steps(lambda: np.copyto(target, source), rounds, warm_up=0)
    return 2 * source.nbytes / min(seconds) / 1e9


def _best(
    pool: ThreadPool, program: Program, seconds: float, now: Callable[[], float] = time.perf_counter, at_least: int = 3
) -> float:
    """Includes the dispatch to the threads, which takes microseconds."""
    return max(min(time_steps(lambda: pool.run(program), at_least, min_seconds=seconds, clock=now)), 1e-9)
