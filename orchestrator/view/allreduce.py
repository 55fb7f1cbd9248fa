"""Result of `bench allreduce`: two lines, or JSON."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from orchestrator.bench.allreduce import AllreduceResult
from orchestrator.text import count_of
from orchestrator.view.console import next_step, out


def as_document(result: AllreduceResult) -> dict[str, Any]:
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
