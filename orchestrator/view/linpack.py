"""Result of `bench linpack`: a table, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from orchestrator.bench.linpack import LinpackPhoneResult, LinpackResult
from orchestrator.text import count_of
from orchestrator.view.console import out
from orchestrator.view.table import Column, FitTable, print_table


def as_document(result: LinpackResult) -> dict[str, Any]:
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
    print_table(out, render_phones(result.phones))
    verdict = ("passed", "green") if result.passed else ("FAILED", "bold red")
    out.print(Text.assemble(f"residual {result.residual:.4g}, must be below {result.limit:g}: ", verdict))


def render_phones(phones: Sequence[LinpackPhoneResult]) -> FitTable:
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
