"""LINPACK on the phones: what is asked for, what fits, and what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.mpi_job import run_mpi_job
from orchestrator.launch.mpirun import agent_argv
from phone_agent.api.linpack import (
    USUAL_BLOCK,
    Grid,
    GridError,
    System,
    TooLargeError,
    check_fits,
    default_n,
    largest_n,
)
from phone_agent.contract.choices import MAX_THREADS

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

MOST_BLOCK = 1024
_START_S = 300.0
_SLOWEST_COLUMN_S = 0.05  # to agree on a pivot
_SLOWEST_FLOPS = 5e7  # of one phone, emulated


@dataclass(frozen=True)
class LinpackRequest:
    n: int | None = None
    memory_share: float | None = None  # of what is free; sets n
    block: int = USUAL_BLOCK
    grid: str | None = None
    threads: int = 0  # of each phone; 0: one for each big core

    def check(self) -> None:
        """Everything that can be wrong with the flags alone."""
        if self.n is not None and self.memory_share is not None:
            raise UsageError("--n and --memory both say how large the system is: give one of them")
        if self.n is not None and self.n < 1:
            raise UsageError(f"--n {self.n}: at least 1 equation")
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise UsageError(f"--memory {self.memory_share:g}: a share of the free memory, between 0 and 1")
        if not 1 <= self.block <= MOST_BLOCK:
            raise UsageError(f"--nb {self.block}: blocks of 1 to {MOST_BLOCK} rows and columns")
        if not 0 <= self.threads <= MAX_THREADS:
            raise UsageError(f"--threads {self.threads}: 1 to {MAX_THREADS}")

    def grid_of(self, phones: int) -> Grid:
        try:
            return Grid.parse(self.grid, phones) if self.grid else Grid.nearly_square(phones)
        except GridError as error:
            raise UsageError(str(error)) from None


@dataclass(frozen=True)
class LinpackPlan:
    system: System
    threads: int

    @property
    def longest_s(self) -> float:
        """A run that takes longer is stuck."""
        n, phones = self.system.n, self.system.grid.size
        return _START_S + n * _SLOWEST_COLUMN_S + self.system.flops / (phones * _SLOWEST_FLOPS)

    def verb(self) -> tuple[str, ...]:
        system = self.system
        sizes = ("--n", str(system.n), "--nb", str(system.block), "--grid", str(system.grid))
        return agent_argv("linpack", *sizes, "--threads", str(self.threads))


@dataclass(frozen=True)
class PhoneShare:
    """Of the work, which is dealt out evenly."""

    phone: Phone
    gflops: float
    peak_gflops: float
    update_gflops: float  # while it multiplied, waiting for nobody
    seconds: Mapping[str, float]  # by what they were spent on

    @property
    def peak_share(self) -> float:
        return self.gflops / self.peak_gflops if self.peak_gflops else 0.0


@dataclass(frozen=True)
class LinpackResult:
    plan: LinpackPlan
    seconds: float
    gflops: float
    residual: float
    limit: float
    passed: bool
    phones: tuple[PhoneShare, ...]
    threads: int
    isa: str


def plan_linpack(
    request: LinpackRequest, phones: Sequence[Phone], memory: Mapping[str, int], *, shared: bool = False
) -> LinpackPlan:
    """`memory`: free on each phone, in bytes, where known; `shared`: all of them have it of one computer."""
    grid = request.grid_of(len(phones))
    try:
        n = _equations(request, grid, memory, len(phones) if shared else 1)
    except TooLargeError as error:
        raise UsageError(str(error)) from None
    return LinpackPlan(System(n, request.block, grid), request.threads)


def _equations(request: LinpackRequest, grid: Grid, memory: Mapping[str, int], sharing: int) -> int:
    free = {name: amount // sharing for name, amount in memory.items()}
    whose = min(free, key=lambda name: free[name], default=None)
    least = None if whose is None else free[whose]
    if request.memory_share is not None:
        if least is None:
            raise UsageError("no phone says how much memory is free; say how large the system is with --n")
        n = largest_n(int(least * request.memory_share), request.block, grid)
        if n < 1:
            raise UsageError(f"--memory {request.memory_share:g} is too little: {whose} has {least // 10**6} MB free")
        return n
    n = request.n or default_n(request.block, grid, least)
    if whose is not None and least is not None:
        check_fits(max(n, 1), request.block, grid, least, whose)
    return n


def bench_linpack(cluster: Cluster, phones: Sequence[Phone], head: PhoneConnection, plan: LinpackPlan) -> LinpackResult:
    report = run_mpi_job(cluster, phones, head, "linpack", plan.verb(), plan.longest_s)
    try:
        return _read(plan, phones, report)
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterctlError(f"the head phone's report makes no sense: {error!r}") from None


def _read(plan: LinpackPlan, phones: Sequence[Phone], report: Mapping[str, Any]) -> LinpackResult:
    seconds, residual, limit = (float(report[name]) for name in ("seconds", "residual", "limit"))
    each = plan.system.flops / seconds / 1e9 / len(phones)
    shares = [
        PhoneShare(
            phone,
            each,
            float(told["peak_gflops"]),
            float(told["update_gflops"]),
            {str(name): float(spent) for name, spent in told["seconds"].items()},
        )
        for phone, told in zip(phones, report["phones"], strict=True)
    ]
    passed = report["passed"] is True and residual < limit
    return LinpackResult(
        plan, seconds, each * len(phones), residual, limit, passed, tuple(shares), int(report["threads"]),
        str(report["isa"]),
    )  # fmt: skip
