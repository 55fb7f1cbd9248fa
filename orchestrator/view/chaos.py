"""Results of `chaos`: recovery time and diagnosis of each kind of fault; then the invariants."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from orchestrator.chaos.evaluate import TOLERANCE, Attribution, Invariant, first_diagnosis, rate_attribution
from orchestrator.chaos.outcome import InjectedFault, InjectionOutcome
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.report import MIN_ATTRIBUTION_ACCURACY, CampaignReport
from orchestrator.text import count_of, one_line
from orchestrator.view.console import note, warn
from orchestrator.view.table import Column, FitTable, print_table

_GOOD = frozenset({Attribution.CORRECT, Attribution.NOT_NEEDED})


def print_injection(plan: RunPlan, outcome: InjectionOutcome) -> None:
    delay = "no step followed" if outcome.seconds is None else f"next step after {outcome.seconds:.1f} s"
    note(
        one_line(f"run {plan.number}, step {outcome.step}: {_faults(outcome.faults)}; {delay}; {_attribution(outcome)}")
    )


def print_report(console: Console, report: CampaignReport) -> None:
    counts = f"{count_of(report.injections, 'fault')} in {count_of(report.runs, 'run')}"
    console.print(Text.assemble(("chaos", "bold"), f"  seed {report.seed}: {counts}"))
    print_table(console, render_kinds(report))
    print_table(console, render_invariants(report))
    for outcome, violation in report.violations:
        warn(f"run {outcome.plan.number} ({outcome.run_id}): {one_line(violation.message)}")
    for injection in report.injections:
        if rate_attribution(injection) not in _GOOD:
            warn(f"{_faults(injection.faults)}: {one_line(_attribution(injection))}")
    for name in report.unsupported:
        note(f"skipped: {name} (not supported by this kernel)")
    for line in report.failed_starts:
        warn(one_line(line))
    if report.interrupted:
        note("interrupted before all faults were injected")
    if report.out_of_time:
        note("time limit (--minutes) reached before all faults were injected")


def _faults(faults: Iterable[InjectedFault]) -> str:
    return " and ".join(f"{each.fault.name} ({each.phone or 'host'})" for each in faults)


def _attribution(outcome: InjectionOutcome) -> str:
    diagnosed = first_diagnosis(outcome)
    rated = f"diagnosis {rate_attribution(outcome)}"
    return f"{rated}: {diagnosed.diagnosis}" if diagnosed else rated


def render_kinds(report: CampaignReport) -> FitTable:
    table = FitTable(
        "fault",
        Column("times", right=True),
        Column("restarts", right=True, priority=2),
        Column("cause correct", right=True),
        Column("median s", right=True, priority=1),
        Column("worst s", right=True),
        Column("detected in s", right=True, priority=3),
    )
    for row in report.by_kind:
        correct = f"{row.correct} of {row.rated}" if row.rated else ""
        style = "" if row.correct == row.rated else "yellow"
        seconds = map(_seconds, (row.median_s, row.worst_s, row.worst_detected_s))
        table.add_row(row.kind, str(row.injections), str(row.restarts or ""), Text(correct, style), *seconds)
    return table


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def render_invariants(report: CampaignReport) -> FitTable:
    table = FitTable(Column("", wrap=True), "", Column("", wrap=True))
    for invariant in Invariant:
        count = report.runs_violating(invariant)
        kept = Text(f"violated by {count_of(count, 'run')}", "bold red") if count else Text("held", "green")
        table.add_row(invariant, kept, _differences(report) if invariant is Invariant.CORRECT_RESULT else "")
    accurate = report.attribution_accuracy >= MIN_ATTRIBUTION_ACCURACY
    accuracy = Text(f"{report.attribution_accuracy:.0%}", "green" if accurate else "bold red")
    table.add_row(f"first diagnosis correct in {MIN_ATTRIBUTION_ACCURACY:.0%}", accuracy, _attributions(report))
    return table


def _differences(report: CampaignReport) -> str:
    bitwise = sum(result.bitwise for _, result in report.runs)
    parts = [f"{count_of(bitwise, 'run')} compared bitwise"]
    if (worst := report.worst_difference(bitwise=False)) is not None:
        changed = count_of(len(report.runs) - bitwise, "run")
        parts.append(f"{changed} with changing phones within {worst:.1e} (tolerance {TOLERANCE:g})")
    return ", ".join(parts)


def _attributions(report: CampaignReport) -> str:
    return ", ".join(f"{count} {each}" for each, count in report.attributions.items() if count)
