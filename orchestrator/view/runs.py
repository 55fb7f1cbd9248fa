"""The list of runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.records.record import RunRecord
from orchestrator.text import one_line
from orchestrator.view.console import next_step
from orchestrator.view.run_format import STATE_STYLE
from orchestrator.view.table import Column, FitTable, print_table


def print_runs(console: Console, records: Sequence[RunRecord], unanswered: Collection[str]) -> None:
    if not records:
        console.print("No runs yet.")
        next_step("clusterctl launch")
        return
    print_table(console, render_runs(records, unanswered))
    for record in records[-3:]:
        if record.failure:
            line = f"{record.run_id}: {one_line(record.failure.headline)}"
            console.print(Text(line, "red"), soft_wrap=True)
    if unanswered:
        console.print(Text("? = head phone not reachable: last known state", "yellow"))


def render_runs(records: Sequence[RunRecord], unanswered: Collection[str]) -> FitTable:
    """`unanswered`: runs whose head phone does not answer."""
    table = FitTable(
        "run",
        "state",
        Column("phones", right=True, priority=2),
        Column("steps", right=True),
        Column("loss", right=True, priority=1),
        Column("images/s", right=True, priority=3),
        Column("duration", right=True, priority=4),
    )
    for record in records:
        table.add_row(*_cells(record, confirmed=record.run_id not in unanswered))
    return table


def _cells(record: RunRecord, *, confirmed: bool) -> list[str | Text]:
    return [
        record.run_id,
        Text(record.state + ("" if confirmed else "?"), STATE_STYLE.get(record.state, "")),
        str(len(record.phones)),
        f"{record.step}/{record.steps}",
        "" if record.loss is None else f"{record.loss:.4f}",
        "" if record.images_per_s is None else f"{record.images_per_s:,.0f}",
        "" if record.ended is None else format_clock(record.ended - record.created),
    ]
