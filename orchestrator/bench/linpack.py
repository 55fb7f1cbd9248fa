"""LINPACK on the phones: request, plan and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.fleet import Fleet
from orchestrator.fleet.agent import bad_answer
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.mpi_job import run_mpi_job
from phone_agent.api.measure import DEFAULT_BLOCK, Grid, System, TooLargeError, check_fits, default_n, largest_n
from phone_agent.contract.choices import MAX_THREADS
from phone_agent.contract.decode import DecodeError
from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.replies import LinpackReport

MAX_BLOCK = 1024
_START_S = 300.0
_SLOWEST_COLUMN_S = 0.05  # to select a pivot
_SLOWEST_FLOPS = 5e7  # per emulated phone


@dataclass(frozen=True)
class LinpackRequest:
    n: int | None = None
    memory_fraction: float | None = None  # of the free memory; determines n
    block: int = DEFAULT_BLOCK
    grid: str | None = None
    threads: int = 0  # per phone; 0: one per big core

    def check(self) -> None:
        """Validates what does not depend on the phones."""
        if self.n is not None and self.memory_fraction is not None:
            raise UsageError("--n and --memory both set the size of the system: use only one")
        if self.n is not None and self.n < 1:
            raise UsageError(f"--n {self.n}: must be at least 1")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise UsageError(
                f"--memory {self.memory_fraction:g}: must be a fraction of the free memory, between 0 and 1"
            )
        if not 1 <= self.block <= MAX_BLOCK:
            raise UsageError(f"--nb {self.block}: must be 1 to {MAX_BLOCK}")
        if not 0 <= self.threads <= MAX_THREADS:
            raise UsageError(f"--threads {self.threads}: must be 1 to {MAX_THREADS}")

    def grid_of(self, phones: int) -> Grid:
        try:
            return Grid.parse(self.grid, phones) if self.grid else Grid.nearly_square(phones)
        except BadRequestError as error:
            raise UsageError(str(error)) from None


@dataclass(frozen=True)
class LinpackPlan:
    system: System
    threads: int

    @property
    def timeout_s(self) -> float:
        """Timeout: a run that takes longer is stuck."""
        n, phones = self.system.n, self.system.grid.size
        return _START_S + n * _SLOWEST_COLUMN_S + self.system.flops / (phones * _SLOWEST_FLOPS)

    def verb(self) -> tuple[str, ...]:
        system = self.system
        sizes = ("--n", str(system.n), "--nb", str(system.block), "--grid", str(system.grid))
        return ("linpack", *sizes, "--threads", str(self.threads))


@dataclass(frozen=True)
class LinpackPhoneResult:
    """The work is distributed evenly."""

    phone: Phone
    gflops: float
    peak_gflops: float
    update_gflops: float  # during updates, without waiting
    seconds: Mapping[str, float]  # by phase

    @property
    def peak_fraction(self) -> float:
        return self.gflops / self.peak_gflops if self.peak_gflops else 0.0


@dataclass(frozen=True)
class LinpackResult:
    plan: LinpackPlan
    seconds: float
    gflops: float
    residual: float
    limit: float
    passed: bool
    phones: tuple[LinpackPhoneResult, ...]
    threads: int
    isa: str


def plan_linpack(
    request: LinpackRequest, phones: Sequence[Phone], memory: Mapping[str, int], *, shared: bool = False
) -> LinpackPlan:
    """`memory`: free bytes by phone, where known. `shared`: all phones use the memory of one computer."""
    grid = request.grid_of(len(phones))
    try:
        n = _choose_n(request, grid, memory, len(phones) if shared else 1)
    except TooLargeError as error:
        raise UsageError(str(error)) from None
    return LinpackPlan(System(n, request.block, grid), request.threads)


def _choose_n(request: LinpackRequest, grid: Grid, memory: Mapping[str, int], divisor: int) -> int:
    free = {name: amount // divisor for name, amount in memory.items()}
    smallest = min(free, key=lambda name: free[name], default=None)
    least = None if smallest is None else free[smallest]
    if request.memory_fraction is not None:
        if least is None:
            raise UsageError("no phone reports its free memory; set the size with --n")
        n = largest_n(int(least * request.memory_fraction), request.block, grid)
        if n < 1:
            raise UsageError(
                f"--memory {request.memory_fraction:g} is too small: {smallest} has {least // 10**6} MB free"
            )
        return n
    n = request.n or default_n(request.block, grid, least)
    if smallest is not None and least is not None:
        check_fits(max(n, 1), request.block, grid, least, smallest)
    return n


def bench_linpack(cluster: Cluster, fleet: Fleet, phones: Sequence[Phone], plan: LinpackPlan) -> LinpackResult:
    report = run_mpi_job(cluster, fleet, phones, plan.verb(), LinpackReport, plan.timeout_s)
    if len(report.phones) != len(phones):
        raise bad_answer(phones[0], "linpack", DecodeError(f"phones: {len(report.phones)} instead of {len(phones)}"))
    return _result(plan, phones, report)


def _result(plan: LinpackPlan, phones: Sequence[Phone], report: LinpackReport) -> LinpackResult:
    gflops_per_phone = plan.system.flops / report.seconds / 1e9 / len(phones)
    results = [
        LinpackPhoneResult(phone, gflops_per_phone, row.peak_gflops, row.update_gflops, row.seconds)
        for phone, row in zip(phones, report.phones, strict=True)
    ]
    return LinpackResult(
        plan,
        report.seconds,
        gflops_per_phone * len(phones),
        report.residual,
        report.limit,
        report.passed and report.residual < report.limit,
        tuple(results),
        report.threads,
        report.isa,
    )
