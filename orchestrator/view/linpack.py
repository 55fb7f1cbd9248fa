"""How fast the phones solved, in words and as JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from orchestrator.bench.linpack import LinpackResult
from orchestrator.text import count_of
from orchestrator.view.console import out


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
                "peak_share": each.peak_share,
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
    table = Table("phone", "Gflop/s", "peak", "of it", "updating", *(result.phones[0].seconds), box=None)
    for each in result.phones:
        figures = (each.gflops, each.peak_gflops)
        spent = (f"{seconds:.2f} s" for seconds in each.seconds.values())
        shown = (f"{each.peak_share:.0%}", f"{each.update_gflops:.1f}", *spent)
        table.add_row(each.phone.name, *(f"{figure:.1f}" for figure in figures), *shown)
    out.print(table)
    verdict = ("passed", "green") if result.passed else ("FAILED", "bold red")
    out.print(Text.assemble(f"residual {result.residual:.4g}, must be below {result.limit:g}: ", verdict))
