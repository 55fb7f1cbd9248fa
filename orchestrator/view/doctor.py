"""DoctorReport of `doctor`: problems by severity with evidence and remedy, commands for adb, and the next step."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.finding import RemedyKind, Severity
from orchestrator.health.report import AppliedFix, DoctorReport, Problem
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err, next_step, note
from orchestrator.view.outcomes import format_phones
from orchestrator.view.table import Column, FitTable, for_tables

_STYLE = {Severity.STOPS: "bold red", Severity.SLOWS: "yellow", Severity.NOTE: "dim"}
_ADB_LINES = 12


def print_report(console: Console, cluster: str, report: DoctorReport) -> None:
    console = for_tables(console)
    _print_fixes(report)
    console.print(_headline(cluster, report))
    if report.problems:
        console.print(render_problems(report))
    _print_adb(console, report)
    for each in report.not_checked:
        note(f"not checked: {each}")
    next_step(_next_command(report))


def _headline(cluster: str, report: DoctorReport) -> Text:
    line = Text.assemble((cluster, "bold"), f"  {count_of(report.phones, 'phone')}, {len(ALL_CHECKS)} checks  ")
    if not report.problems:
        return line.append("no problems found", "green")
    words = {Severity.STOPS: "would stop a run", Severity.SLOWS: "would slow it down", Severity.NOTE: "to note"}
    parts = [Text(f"{report.count(each)} {words[each]}", _STYLE[each]) for each in Severity if report.count(each)]
    return line.append_text(Text(", ").join(parts))


def render_problems(report: DoctorReport) -> FitTable:
    table = FitTable(
        Column("row", right=True, priority=1),
        "check",
        Column("phones", wrap=True),
        Column("evidence", wrap=True),
        Column("what to do", wrap=True),
    )
    for problem in report.problems:
        check = Text(problem.check.name, _STYLE[problem.first.severity])
        cells = (format_phones(problem.phones), one_line(problem.evidence), one_line(_remedy(problem)))
        table.add_row(str(problem.check.row or ""), check, *cells)
    return table


def _remedy(problem: Problem) -> str:
    first = problem.first
    by = {RemedyKind.SSH: " [--fix]", RemedyKind.ADB: " [adb]", RemedyKind.MANUAL: ""}[first.kind]
    return first.remedy + by


def _print_adb(console: Console, report: DoctorReport) -> None:
    chosen = [problem for problem in report.problems if problem.first.kind is RemedyKind.ADB]
    lines = [(problem, line) for problem in chosen for line in problem.adb_lines]
    if not lines:
        return
    console.print(Text("\nRun with adb, with the phone on a USB cable instead of its Ethernet adapter:", "dim"))
    shown: Problem | None = None
    for problem, line in lines[:_ADB_LINES]:
        if problem is not shown:
            console.print(Text(f"  # {problem.check.label}: {format_phones(problem.phones)}", "dim"))
            shown = problem
        console.print(Text(f"  {line}"), soft_wrap=True)
    if len(lines) > _ADB_LINES:
        console.print(Text(f"  … {len(lines) - _ADB_LINES} more lines: clusterctl doctor --json", "dim"))


def _print_fixes(report: DoctorReport) -> None:
    groups: dict[tuple[str, bool, str], list[AppliedFix]] = {}
    for fix in report.fixes:
        groups.setdefault((fix.fix.value, fix.ok, fix.message), []).append(fix)
    for (_, ok, message), fixes in groups.items():
        who = format_phones(tuple(fix.phone for fix in fixes))
        err.print(Text(f"{who}: {one_line(message)}", "green" if ok else "red"), soft_wrap=True)
    if report.resolved:
        rows = dict.fromkeys(each.check.name for each in report.resolved)
        who = fold(dict.fromkeys(each.phone for each in report.resolved))
        err.print(Text(f"fixed: {', '.join(rows)} ({who})", "green"), soft_wrap=True)


def _next_command(report: DoctorReport) -> str:
    """The one command that helps most."""
    left = [phone for phone in report.fixable if not any(fix.phone == phone for fix in report.fixes)]
    if left:
        return f"clusterctl doctor --fix --limit {fold(left)}"
    for problem in report.problems:
        if problem.first.severity is not Severity.NOTE and problem.command:
            return problem.command
    if report.healthy:
        return "clusterctl launch"
    return f"clusterctl doctor --limit {fold(blocking_phones(report))}"


def blocking_phones(report: DoctorReport) -> tuple[Phone, ...]:
    stopping = [each.phone for each in report.findings if each.finding.severity is Severity.STOPS]
    return tuple(dict.fromkeys(stopping))
