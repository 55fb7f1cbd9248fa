"""The list of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.records.record import RunRecord, StoredRun
from orchestrator.records.run_status import RunStatus
from orchestrator.text import one_line
from orchestrator.view.console import next_step
from orchestrator.view.run_format import STATE_STYLE, format_silence
from orchestrator.view.table import Column, FitTable, print_table


def print_runs(console: Console, runs: Sequence[StoredRun], problems: Mapping[str, str]) -> None:
    """`problems`: why the supervisor cannot follow a run at the moment, by run; empty if it can."""
    if not runs:
        console.print("No runs yet.")
        next_step("clusterctl launch")
        return
    print_table(console, render_runs(runs, {run_id for run_id, problem in problems.items() if problem}))
    for record in [run.record for run in runs[-3:]]:
        if record.failure:
            line = f"{record.run_id}: {one_line(record.failure.headline)}"
            console.print(Text(line, "red"), soft_wrap=True)
    for run_id, problem in problems.items():
        if problem:
            console.print(Text(f"{run_id}: last known state; {one_line(problem)}", "yellow"), soft_wrap=True)


def print_waiting_runs(console: Console, runs: Sequence[RunStatus]) -> None:
    """Unfinished runs that do not train at the moment, and what helps."""
    for run in runs:
        reason = f"waiting for {one_line(run.waiting_for)}" if run.waiting_for else format_silence(run)
        if reason:
            console.print(Text(f"{run.run_id}  {run.state} at step {run.step}: {reason}", "yellow"), soft_wrap=True)
            next_step(run.next_command or f"clusterctl attach {run.run_id}")


def render_runs(runs: Sequence[StoredRun], unanswered: Collection[str]) -> FitTable:
    """`unanswered`: runs that cannot be followed at the moment. Clusters are shown if there are several."""
    several = len({run.state.cluster for run in runs}) > 1
    table = FitTable(
        "run",
        *(["cluster"] if several else []),
        "state",
        Column("phones", right=True, priority=2),
        Column("steps", right=True),
        Column("loss", right=True, priority=1),
        Column("images/s", right=True, priority=3),
        Column("duration", right=True, priority=4),
    )
    for run in runs:
        first, *others = _cells(run.record, confirmed=run.record.run_id not in unanswered)
        table.add_row(first, *([run.state.cluster] if several else []), *others)
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
