"""`python3 -m phone_agent linpack`, started by mpirun on every phone: solve, check, and say how fast."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phone_agent.bench.kernels import peak_gflops
from phone_agent.core.thread_pool import ThreadPool
from phone_agent.device.memory import available_mb
from phone_agent.linpack.back_substitution import substitute
from phone_agent.linpack.factorize import Elimination, Phases
from phone_agent.linpack.kernels import Kernels
from phone_agent.linpack.matrix import System
from phone_agent.linpack.memory import check_fits
from phone_agent.linpack.residual import MOST, residual

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import Mesh  # starts MPI

PHASES = ("panel", "broadcast", "swap", "solve", "update", "substitute")


@dataclass(frozen=True)
class Request:
    n: int
    block: int
    threads: int
    seed: int = 1


def run(request: Request, mesh: Mesh) -> dict[str, Any]:
    """The same on all ranks."""
    memory = available_mb()
    if memory is not None:
        check_fits(request.n, request.block, mesh.grid, memory * 1_000_000, "this phone")
    system = System(request.n, request.block, mesh.grid, request.seed)
    isa, peak = _machine(request.threads)
    seconds, answer, phases = solve(system, mesh, request.threads)
    error = residual(system, mesh, answer)
    return {
        "n": request.n,
        "nb": request.block,
        "grid": [mesh.grid.rows, mesh.grid.columns],
        "threads": request.threads,
        "isa": isa,
        "seconds": seconds,
        "gflops": system.flops / seconds / 1e9,
        "residual": error,
        "limit": MOST,
        "passed": error < MOST,
        "phones": _phones(mesh, peak, phases),
    }


def _machine(threads: int) -> tuple[str, float]:
    pool = ThreadPool(threads)
    try:
        return pool.isa, peak_gflops(pool, in_double=True)
    finally:
        pool.close()


def solve(system: System, mesh: Mesh, threads: int) -> tuple[float, np.ndarray[Any, np.dtype[np.float64]], Phases]:
    """Seconds of the slowest, as the benchmark counts: the matrix is there, and the answer is not yet checked."""
    part, phases = system.part(mesh.row, mesh.column), Phases()
    rows, columns = part.shape
    kernels = Kernels(threads, max(rows, system.block), max(rows, columns), system.block)
    try:
        mesh.all.gather(np.zeros(1))  # start together
        started = time.perf_counter()
        Elimination(system, mesh, part, kernels, phases).run()
        with phases.of("substitute"):
            answer = substitute(system, mesh, part)
        took = time.perf_counter() - started
    finally:
        kernels.close()
    return float(mesh.all.gather(np.array([took])).max()), answer, phases


def _phones(mesh: Mesh, peak: float, phases: Phases) -> list[dict[str, Any]]:
    """What each can do at most, what it did while it updated, and where its time went."""
    spent = [phases.seconds[name] for name in PHASES]
    speed = phases.update_flops / phases.seconds["update"] / 1e9 if phases.update_flops else 0.0
    told = mesh.all.gather(np.array([peak, speed, *spent]))
    return [
        {"peak_gflops": row[0], "update_gflops": row[1], "seconds": dict(zip(PHASES, row[2:], strict=True))}
        for row in told.tolist()
    ]
