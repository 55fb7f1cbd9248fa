"""Results of `chaos`: per kind of fault, the recovery time and whether the cause was diagnosed; then the guarantees."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from orchestrator.chaos.evaluate import TOLERANCE, Attribution, Promise, cause, first_cause
from orchestrator.chaos.outcome import BlowStory
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import RIGHT_AT_LEAST, Report
from orchestrator.text import count_of, one_line
from orchestrator.view.console import note, warn
from orchestrator.view.table import Column, FitTable, print_table

_STYLE = {Attribution.RIGHT: "green", Attribution.NONE: "dim"}


def print_fault(plan: RunPlan, blow: BlowStory) -> None:
    who = " and ".join(f"{hit.fault.name} ({hit.phone or 'host'})" for hit in blow.hits)
    after = "no step followed" if blow.seconds is None else f"{blow.seconds:.1f} s"
    reported = _reported(blow)
    named = f"{cause(blow)}: {reported}" if reported else str(cause(blow))
    note(one_line(f"run {plan.number}, step {blow.step}: {who}; {after}; {named}"))


def _reported(blow: BlowStory) -> str:
    first = first_cause(blow)
    return first.diagnosis if first else ""


def print_report(console: Console, report: Report) -> None:
    head = f"{count_of(report.blows, 'fault')} over {count_of(report.runs, 'run')}"
    console.print(Text.assemble(("chaos", "bold"), f"  seed {report.seed}: {head}"))
    print_table(console, render_kinds(report))
    print_table(console, render_guarantees(report))
    for story, breach in report.breaches:
        warn(f"run {story.plan.number} ({story.run_id}): {one_line(breach.message)}")
    for blow in report.blows:
        if cause(blow) not in _STYLE:
            hits = " and ".join(f"{hit.fault.name} of {hit.phone or 'the host'}" for hit in blow.hits)
            warn(f"{hits}: {cause(blow)}: {one_line(_reported(blow) or 'nothing reported')}")
    for name in report.missing:
        note(f"skipped: {name} (not supported by this kernel)")
    for line in report.not_carried_out:
        warn(one_line(line))
    if report.interrupted:
        note("interrupted before all faults were injected")
    if report.out_of_time:
        note("time limit (--minutes) reached before all faults were injected")


def render_kinds(report: Report) -> FitTable:
    table = FitTable(
        "fault",
        Column("times", right=True),
        Column("restarts", right=True, priority=2),
        Column("cause correct", right=True),
        Column("median s", right=True, priority=1),
        Column("worst s", right=True),
        Column("detected in s", right=True, priority=3),
    )
    for row in report.rows:
        named = f"{row.right} of {row.judged}" if row.judged else ""
        style = "" if row.right == row.judged else "yellow"
        seconds = map(_s, (row.median_s, row.worst_s, row.noticed_s))
        table.add_row(row.kind, str(row.blows), str(row.restarts or ""), Text(named, style), *seconds)
    return table


def _s(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def render_guarantees(report: Report) -> FitTable:
    table = FitTable(Column("", wrap=True), "", Column("", wrap=True))
    for promise in Promise:
        count = report.broken(promise)
        kept = Text("held", "green") if not count else Text(f"violated by {count_of(count, 'run')}", "bold red")
        table.add_row(promise, kept, _differences(report) if promise is Promise.RESULT else "")
    right = report.right_share >= RIGHT_AT_LEAST
    share = Text(f"{report.right_share:.0%} correct", "green" if right else "bold red")
    table.add_row(f"first reported cause correct in {RIGHT_AT_LEAST:.0%}", share, _causes(report))
    return table


def _differences(report: Report) -> str:
    same = sum(verdict.to_the_bit for _, verdict in report.runs)
    parts = [f"{count_of(same, 'run')} bit-identical"]
    if (apart := report.worst_difference(to_the_bit=False)) is not None:
        parts.append(f"{len(report.runs) - same} with changing phones within {apart:.1e} (tolerance {TOLERANCE:g})")
    return ", ".join(parts)


def _causes(report: Report) -> str:
    return ", ".join(f"{count} {each}" for each, count in report.causes.items() if count)
