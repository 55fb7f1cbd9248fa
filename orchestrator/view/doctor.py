"""Report of `doctor`: problems by severity with evidence and remedy, commands for adb, and the next step."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from orchestrator.health.checks import ALL
from orchestrator.health.finding import Kind, Severity
from orchestrator.health.report import Deed, Report, Trouble
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err, next_step, note
from orchestrator.view.phones import format_phones
from orchestrator.view.table import Column, FitTable, for_tables

_STYLE = {Severity.STOPS: "bold red", Severity.SLOWS: "yellow", Severity.NOTE: "dim"}
_ADB_LINES = 12


def print_report(console: Console, cluster: str, report: Report) -> None:
    console = for_tables(console)
    _print_fixes(report)
    console.print(_headline(cluster, report))
    if report.troubles:
        console.print(render_problems(report))
    _print_adb(console, report)
    for each in report.unasked:
        note(f"not checked: {each}")
    next_step(_next_command(report))


def _headline(cluster: str, report: Report) -> Text:
    line = Text.assemble((cluster, "bold"), f"  {count_of(report.phones, 'phone')}, {len(ALL)} checks  ")
    if not report.troubles:
        return line.append("no problems found", "green")
    words = {Severity.STOPS: "would stop a run", Severity.SLOWS: "would slow it down", Severity.NOTE: "to note"}
    parts = [Text(f"{report.count(each)} {words[each]}", _STYLE[each]) for each in Severity if report.count(each)]
    return line.append_text(Text(", ").join(parts))


def render_problems(report: Report) -> FitTable:
    table = FitTable(
        Column("row", right=True, priority=1),
        "check",
        Column("phones", wrap=True),
        Column("evidence", wrap=True),
        Column("what to do", wrap=True),
    )
    for trouble in report.troubles:
        check = Text(trouble.check.name, _STYLE[trouble.first.severity])
        cells = (format_phones(trouble.phones), one_line(trouble.evidence), one_line(_remedy(trouble)))
        table.add_row(str(trouble.check.row or ""), check, *cells)
    return table


def _remedy(trouble: Trouble) -> str:
    first = trouble.first
    by = {Kind.SSH: " [--fix]", Kind.ADB: " [adb]", Kind.HANDS: ""}[first.kind]
    return first.remedy + by


def _print_adb(console: Console, report: Report) -> None:
    chosen = [trouble for trouble in report.troubles if trouble.first.kind is Kind.ADB]
    lines = [(trouble, line) for trouble in chosen for line in trouble.adb_lines]
    if not lines:
        return
    console.print(Text("\nRun with adb, with the phone on a USB cable instead of its Ethernet adapter:", "dim"))
    shown: Trouble | None = None
    for trouble, line in lines[:_ADB_LINES]:
        if trouble is not shown:
            console.print(Text(f"  # {trouble.check.label}: {format_phones(trouble.phones)}", "dim"))
            shown = trouble
        console.print(Text(f"  {line}"), soft_wrap=True)
    if len(lines) > _ADB_LINES:
        console.print(Text(f"  … {len(lines) - _ADB_LINES} more lines: clusterctl doctor --json", "dim"))


def _print_fixes(report: Report) -> None:
    groups: dict[tuple[str, bool, str], list[Deed]] = {}
    for deed in report.deeds:
        groups.setdefault((deed.fix.value, deed.ok, deed.said), []).append(deed)
    for (_, ok, said), deeds in groups.items():
        who = format_phones(tuple(deed.phone for deed in deeds))
        err.print(Text(f"{who}: {one_line(said)}", "green" if ok else "red"), soft_wrap=True)
    if report.cured:
        rows = dict.fromkeys(each.check.name for each in report.cured)
        who = fold(dict.fromkeys(each.phone for each in report.cured))
        err.print(Text(f"fixed: {', '.join(rows)} ({who})", "green"), soft_wrap=True)


def _next_command(report: Report) -> str:
    """The one command that helps most."""
    left = [phone for phone in report.fixable if not any(deed.phone == phone for deed in report.deeds)]
    if left:
        return f"clusterctl doctor --fix --limit {fold(left)}"
    for trouble in report.troubles:
        if trouble.first.severity is not Severity.NOTE and trouble.command:
            return trouble.command
    if report.healthy:
        return "clusterctl launch"
    return f"clusterctl doctor --limit {fold(blocking_phones(report))}"


def blocking_phones(report: Report) -> tuple[Phone, ...]:
    stopping = [each.phone for each in report.found if each.finding.severity is Severity.STOPS]
    return tuple(dict.fromkeys(stopping))
