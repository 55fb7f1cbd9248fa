"""Results of `bench`: tables, or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from orchestrator.bench.allreduce import AllreduceResult
from orchestrator.bench.linpack import LinpackPhoneResult, LinpackResult
from orchestrator.text import count_of
from orchestrator.view.console import next_step, out
from orchestrator.view.table import Column, FitTable, print_table

if TYPE_CHECKING:
    from phone_agent.api.measure import ComputeResult, KernelResult, Machine, OperationTime


def compute_document(outcome: ComputeResult) -> dict[str, Any]:
    request = outcome.request
    return {
        "model": request.model,
        "batch": request.batch,
        "threads": request.threads,
        "steps": request.steps,
        "backend": request.backend,
        "isa": outcome.isa,
        "step_s": outcome.step_s,
        "best_step_s": outcome.best_s,
        "images_per_s": outcome.images_per_s,
        "loss": outcome.loss,
        "peak_rss_mb": outcome.peak_rss_mb,
        "planned_mb": outcome.planned_mb,
        "gflops": outcome.gflops,
        "peak_gflops": outcome.peak_gflops,
        "peak_fraction": outcome.peak_fraction,
        "breakdown": [asdict(share) for share in outcome.breakdown],
    }


def print_compute(outcome: ComputeResult) -> None:
    request = outcome.request
    how = f"{request.model}, batch {request.batch}, {count_of(request.threads, 'thread')}, {outcome.isa}"
    how += ", fp16 activations" if request.half else ""
    out.print(Text.assemble(how, ": ", (f"{outcome.images_per_s:.1f} images/s", "bold")))
    out.print(f"  step {outcome.step_s * 1e3:.1f} ms (best {outcome.best_s * 1e3:.1f}), loss {outcome.loss:.4f}")
    peak = "" if outcome.peak_fraction is None else f", {outcome.peak_fraction:.0%} of peak multiply-add rate"
    out.print(f"  {outcome.gflops:.1f} GFLOP/s{peak}", markup=False)
    planned = "" if outcome.planned_mb is None else f" ({outcome.planned_mb:.0f} MB planned)"
    out.print(f"  peak memory {outcome.peak_rss_mb:.0f} MB{planned}", markup=False)
    if outcome.breakdown:
        print_table(out, render_breakdown(outcome.breakdown))


def kernels_document(machine: Machine, measured: Iterable[KernelResult]) -> dict[str, Any]:
    return {"machine": asdict(machine), "kernels": [asdict(one) for one in measured]}


def print_kernels(machine: Machine, measured: Iterable[KernelResult]) -> None:
    limits = f"peak {machine.peak_gflops:.1f} GFLOP/s (multiply-add), {machine.copy_gbs:.1f} GB/s (copy)"
    out.print(f"{machine.isa}, {count_of(machine.threads, 'thread')}: {limits}", markup=False)
    print_table(out, render_kernels(measured))


def render_kernels(measured: Iterable[KernelResult]) -> FitTable:
    table = FitTable(
        "kernel",
        Column("shape", priority=1),
        Column("ms", right=True),
        Column("GFLOP/s", right=True),
        Column("of peak", right=True),
        Column("GB/s", right=True, priority=2),
    )
    for one in measured:
        share = "" if one.peak_fraction is None else f"{one.peak_fraction:.0%}"
        numbers = (f"{one.seconds * 1e3:.3f}", _number(one.gflops), share, _number(one.gbs))
        table.add_row(one.name, one.shape, *numbers)
    return table


def render_breakdown(operations: Iterable[OperationTime]) -> FitTable:
    table = FitTable(
        "operation",
        "direction",
        Column("ms", right=True),
        Column("of step", right=True),
        Column("GFLOP/s", right=True, priority=1),
        Column("GB/s", right=True, priority=2),
    )
    for one in operations:
        numbers = (f"{one.seconds * 1e3:.2f}", f"{one.fraction:.1%}", _number(one.gflops), _number(one.gbs))
        table.add_row(one.kind, one.direction, *numbers)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def allreduce_document(result: AllreduceResult) -> dict[str, Any]:
    request = result.request
    return {
        "seconds": result.seconds,
        "line_rate_fraction": result.line_rate_fraction,
        "correct": result.correct,
        "limit_seconds": result.limit_s,
        "all_seconds": list(result.all_seconds),
        "bytes": result.bytes,
        "sent_bytes": result.sent_bytes,
        "cpu_seconds": result.cpu_seconds,
        "phones": result.phones,
        "algorithm": request.algorithm,
        "group": request.group,
        "wire": request.wire,
        "order": request.order,
    }


def print_allreduce(result: AllreduceResult) -> None:
    request = result.request
    groups = f" in groups of {request.group}" if request.group else ""
    how = f"{request.algorithm}{groups}, {request.wire}, {request.order} order"
    what = f"allreduce of {result.bytes / 1e6:.1f} MB over {count_of(result.phones, 'phone')}, {how}:"
    out.print(Text.assemble(what, " ", (f"{result.seconds:.3f} s", "bold")), soft_wrap=True)
    fraction = f"{result.line_rate_fraction:.0%} of link speed (at best {result.limit_s:.3f} s)"
    out.print(f"  {fraction}", markup=False)
    if not result.correct:
        out.print(Text("  WRONG RESULT: the sum differs from the expected one", "bold red"))
        next_step("clusterctl doctor")


def linpack_document(result: LinpackResult) -> dict[str, Any]:
    system = result.plan.system
    return {
        "passed": result.passed,
        "residual": result.residual,
        "residual_limit": result.limit,
        "gflops": result.gflops,
        "gflops_per_phone": result.gflops / len(result.phones),
        "seconds": result.seconds,
        "n": system.n,
        "nb": system.block,
        "grid": str(system.grid),
        "threads": result.threads,
        "isa": result.isa,
        "phones": [
            {
                "phone": each.phone.name,
                "gflops": each.gflops,
                "peak_gflops": each.peak_gflops,
                "peak_fraction": each.peak_fraction,
                "update_gflops": each.update_gflops,
                "seconds": dict(each.seconds),
            }
            for each in result.phones
        ],
    }


def print_linpack(result: LinpackResult) -> None:
    system = result.plan.system
    what = f"n {system.n}, nb {system.block}, grid {system.grid}, {count_of(len(result.phones), 'phone')}"
    out.print(Text.assemble(what, "  ", (f"{result.gflops:.2f} Gflop/s", "bold"), f"  {result.seconds:.2f} s"))
    print_table(out, render_linpack_phones(result.phones))
    verdict = ("passed", "green") if result.passed else ("FAILED", "bold red")
    out.print(Text.assemble(f"residual {result.residual:.4g}, must be below {result.limit:g}: ", verdict))


def render_linpack_phones(phones: Sequence[LinpackPhoneResult]) -> FitTable:
    phases = [Column(phase, right=True, priority=3) for phase in phones[0].seconds]
    table = FitTable(
        "phone",
        Column("Gflop/s", right=True),
        Column("peak", right=True, priority=1),
        Column("of peak", right=True),
        Column("update Gflop/s", right=True, priority=2),
        *phases,
    )
    for each in phones:
        figures = (
            f"{each.gflops:.1f}",
            f"{each.peak_gflops:.1f}",
            f"{each.peak_fraction:.0%}",
            f"{each.update_gflops:.1f}",
        )
        table.add_row(each.phone.name, *figures, *(f"{seconds:.2f} s" for seconds in each.seconds.values()))
    return table
