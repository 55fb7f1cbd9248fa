"""Results of `collect-logs` (what was copied, what is missing) and `timeline` (how the time of a step divides)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from orchestrator.inventory import fold
from orchestrator.logs.collect import CollectedLogs
from orchestrator.logs.trace import StepBreakdown
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step, note, out
from orchestrator.view.table import Column, FitTable, print_table


def print_collected(collected: CollectedLogs) -> None:
    had = [outcome for outcome in collected.outcomes if outcome.value is not None]
    megabytes = sum(sum(outcome.value.files.values()) for outcome in had if outcome.value) / 1e6
    out.print(
        f"{collected.directory}: logs of {len(had)} of {len(collected.outcomes)} phones, {megabytes:.1f} MB",
        markup=False,
    )
    out.print(f"  merged.log, merged.jsonl: {collected.merged_lines} lines", markup=False)
    if collected.archive:
        out.print(f"  {collected.archive}", markup=False)
    for who, what in _problems(collected):
        err.print(Text(f"  {who}: {what}", "yellow"), soft_wrap=True)
    if failures := collected.outcomes.failures:
        next_step(f"clusterctl status --limit {fold(failure.phone for failure in failures)}")


def as_document(run_id: str, collected: CollectedLogs) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "directory": str(collected.directory),
        "archive": collected.archive and str(collected.archive),
        "merged_lines": collected.merged_lines,
        "phones": [
            {
                "name": outcome.phone.name,
                "where": outcome.phone.where,
                "status": outcome.status.value,
                "files": outcome.value.files if outcome.value else {},
                "notes": [one_line(note) for note in (outcome.value.notes if outcome.value else [])],
                "error": outcome.error and one_line(outcome.error),
                "code": outcome.code,
                "kept_from_earlier": outcome.phone in collected.from_earlier,
            }
            for outcome in collected.outcomes
        ],
    }


def _problems(collected: CollectedLogs) -> list[tuple[str, str]]:
    found = []
    for outcome in collected.outcomes:
        notes = outcome.value.notes if outcome.value else [outcome.error or "no answer"]
        if outcome.phone in collected.from_earlier:
            notes = [*notes, "logs from an earlier collection are kept"]
        found += [(f"{outcome.phone.name} ({outcome.phone.where})", one_line(note)) for note in notes]
    return found


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
