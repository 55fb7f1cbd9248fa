"""`python3 -m phone_agent linpack`, started by mpirun on every phone: solves, checks and measures."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phone_agent.bench.kernels import peak_gflops
from phone_agent.core.thread_pool import ThreadPool
from phone_agent.device.memory import available_mb
from phone_agent.linpack.factorize import Factorization, Phases
from phone_agent.linpack.kernels import Kernels
from phone_agent.linpack.matrix import System, check_fits
from phone_agent.linpack.solution import MAX_RESIDUAL, back_substitute, residual

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import ProcessGrid  # starts MPI

PHASES = ("panel", "broadcast", "swap", "solve", "update", "substitute")


@dataclass(frozen=True)
class LinpackSize:
    n: int
    block: int
    threads: int
    seed: int = 1


def run(request: LinpackSize, process_grid: ProcessGrid) -> dict[str, Any]:
    """Returns the same report on all ranks."""
    memory = available_mb()
    if memory is not None:
        check_fits(request.n, request.block, process_grid.grid, memory * 1_000_000, "this phone")
    system = System(request.n, request.block, process_grid.grid, request.seed)
    isa, peak = _measure_peak(request.threads)
    seconds, solution, phases = solve(system, process_grid, request.threads)
    error = residual(system, process_grid, solution)
    return {
        "n": request.n,
        "nb": request.block,
        "grid": [process_grid.grid.rows, process_grid.grid.columns],
        "threads": request.threads,
        "isa": isa,
        "seconds": seconds,
        "gflops": system.flops / seconds / 1e9,
        "residual": error,
        "limit": MAX_RESIDUAL,
        "passed": error < MAX_RESIDUAL,
        "phones": _phone_reports(process_grid, peak, phases),
    }


def _measure_peak(threads: int) -> tuple[str, float]:
    with closing(ThreadPool(threads)) as pool:
        return pool.isa, peak_gflops(pool, in_double=True)


def solve(
    system: System, process_grid: ProcessGrid, threads: int
) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]], Phases]:
    """Returns the seconds of the slowest rank. As HPL defines, generating and checking are not included."""
    part, phases = system.local_matrix(process_grid.row, process_grid.column), Phases()
    rows, columns = part.shape
    with closing(Kernels(threads, max(rows, system.block), max(rows, columns), system.block)) as kernels:
        process_grid.world.gather(np.zeros(1))  # barrier
        started = time.perf_counter()
        Factorization(system, process_grid, part, kernels, phases).run()
        with phases.of("substitute"):
            solution = back_substitute(system, process_grid, part)
        elapsed = time.perf_counter() - started
    return float(process_grid.world.gather(np.array([elapsed])).max()), solution, phases


def _phone_reports(process_grid: ProcessGrid, peak: float, phases: Phases) -> list[dict[str, Any]]:
    """Peak speed, speed of the update, and seconds per phase of each phone."""
    spent = [phases.seconds[name] for name in PHASES]
    speed = phases.update_flops / phases.seconds["update"] / 1e9 if phases.update_flops else 0.0
    rows = process_grid.world.gather(np.array([peak, speed, *spent]))
    return [
        {"peak_gflops": row[0], "update_gflops": row[1], "seconds": dict(zip(PHASES, row[2:], strict=True))}
        for row in rows.tolist()
    ]
