"""The list of runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.records.record import RunRecord
from orchestrator.text import one_line
from orchestrator.view.console import next_step
from orchestrator.view.run_format import STATE_STYLE
from orchestrator.view.width import wide_enough


def print_runs(console: Console, records: Sequence[RunRecord], silent: Collection[str]) -> None:
    if not records:
        console.print("No runs yet.")
        next_step("clusterctl launch")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("run", "state", "phones", "steps", "loss", "images/s", "took"):
        table.add_column(
            name, no_wrap=True, justify="right" if name in {"phones", "steps", "loss", "images/s"} else "left"
        )
    for record in records:
        table.add_row(*_row(record, heard=record.run_id not in silent))
    wide_enough(console).print(table)
    for record in records[-3:]:
        if record.error:
            console.print(Text(f"{record.run_id}: {one_line(record.error)}", "red"), soft_wrap=True)
    if silent:
        console.print(Text("? the head phone does not answer: the last that is known", "yellow"))


def _row(record: RunRecord, *, heard: bool) -> list[str | Text]:
    return [
        record.run_id,
        Text(record.state + ("" if heard else "?"), STATE_STYLE.get(record.state, "")),
        str(len(record.phones)),
        f"{record.step}/{record.steps}",
        "" if record.loss is None else f"{record.loss:.4f}",
        "" if record.images_per_s is None else f"{record.images_per_s:,.0f}",
        "" if record.ended is None else format_clock(record.ended - record.created),
    ]
