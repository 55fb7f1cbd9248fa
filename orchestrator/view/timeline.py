"""Per rank, how a step's time divides into compute and communication."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.logs.trace import StepBreakdown
from orchestrator.view.console import note, out
from orchestrator.view.table import Column, FitTable, print_table


def print_timeline(breakdowns: Sequence[StepBreakdown], path: Path, clock_error_s: float) -> None:
    print_table(out, render_breakdowns(breakdowns))
    note("exposed: part of the step that waits for communication; the rest of it overlaps with compute")
    note(f"{path}: open it in chrome://tracing or ui.perfetto.dev (clocks agree within {clock_error_s * 1e3:.1f} ms)")


def render_breakdowns(breakdowns: Sequence[StepBreakdown]) -> FitTable:
    table = FitTable(
        Column("rank", right=True),
        "phone",
        Column("steps", right=True, priority=1),
        Column("step", right=True),
        Column("compute", right=True),
        Column("communication", right=True),
        Column("exposed", right=True),
    )
    for each in breakdowns:
        seconds = (each.step_s, each.compute_s, each.communication_s)
        shown = [f"{value * 1e3:.1f} ms" for value in seconds]
        table.add_row(str(each.rank), each.phone, str(each.steps), *shown, f"{each.exposed:.1%}")
    return table
