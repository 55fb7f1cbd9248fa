"""Chaos on one screen: each kind of fault, how it was told, how long it held a run up; and the promises."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.chaos.evaluate import TOLERANCE, Attribution, Promise, cause, first_cause
from orchestrator.chaos.outcome import BlowStory
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import RIGHT_AT_LEAST, Report
from orchestrator.text import count_of, one_line
from orchestrator.view.console import note, warn

_STYLE = {Attribution.RIGHT: "green", Attribution.NONE: "dim"}


def tell_blow(plan: RunPlan, blow: BlowStory) -> None:
    who = " and ".join(f"{hit.fault.name} ({hit.phone or 'host'})" for hit in blow.hits)
    after = "no step came after it" if blow.seconds is None else f"{blow.seconds:.1f} s"
    told = first_cause(blow)
    named = f"{cause(blow)}: {told}" if told else str(cause(blow))
    note(one_line(f"run {plan.number}, step {blow.step}: {who}; {after}; {named}"))


def print_report(console: Console, report: Report) -> None:
    head = f"{count_of(report.blows, 'fault')} over {count_of(report.runs, 'run')}"
    console.print(Text.assemble(("chaos", "bold"), f"  seed {report.seed}: {head}"))
    console.print(_kinds(report))
    console.print(_promises(report))
    for story, breach in report.breaches:
        warn(f"run {story.plan.number} ({story.run_id}): {one_line(breach.message)}")
    for blow in report.blows:
        if cause(blow) not in _STYLE:
            hits = " and ".join(f"{hit.fault.name} of {hit.phone or 'the host'}" for hit in blow.hits)
            warn(f"{hits}: {cause(blow)}: {one_line(named.diagnosis if (named := first_cause(blow)) else 'no word')}")
    for name in report.missing:
        note(f"left out: {name}, which this kernel does not offer")
    for line in report.not_carried_out:
        warn(one_line(line))
    if report.interrupted:
        note("interrupted before all faults had come")
    if report.out_of_time:
        note("the time was up before all faults had come")


def _kinds(report: Report) -> Table:
    table = Table("fault", box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("times", "started again", "cause right", "median s", "worst s", "noticed in"):
        table.add_column(title, justify="right")
    for row in report.rows:
        named = f"{row.right} of {row.judged}" if row.judged else ""
        style = "" if row.right == row.judged else "yellow"
        seconds = map(_s, (row.median_s, row.worst_s, row.noticed_s))
        table.add_row(row.kind, str(row.blows), str(row.restarts or ""), Text(named, style), *seconds)
    return table


def _s(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def _promises(report: Report) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for promise in Promise:
        count = report.broken(promise)
        kept = Text("kept", "green") if not count else Text(f"broken by {count_of(count, 'run')}", "bold red")
        table.add_row(promise, kept, _differences(report) if promise is Promise.RESULT else "")
    right = report.right_share >= RIGHT_AT_LEAST
    told = Text(f"{report.right_share:.0%} right", "green" if right else "bold red")
    table.add_row(f"first cause right in {RIGHT_AT_LEAST:.0%}", told, _causes(report))
    return table


def _differences(report: Report) -> str:
    same = sum(verdict.to_the_bit for _, verdict in report.runs)
    parts = [f"{count_of(same, 'run')} to be equal to the bit"]
    if (apart := report.worst_difference(to_the_bit=False)) is not None:
        parts.append(f"{len(report.runs) - same} with changing phones within {apart:.1e} (allowed {TOLERANCE:g})")
    return ", ".join(parts)


def _causes(report: Report) -> str:
    return ", ".join(f"{count} {each}" for each, count in report.causes.items() if count)
