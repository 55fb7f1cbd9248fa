"""`provision` on the terminal: the remaining phones while it runs; then what changed, who is ready and what failed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.provision.engine import (
    Event,
    Note,
    OnEvent,
    PhoneFinished,
    StageStarted,
    StepFinished,
    StepStarted,
    StepStatus,
    StepSummary,
)
from orchestrator.provision.report import PhoneProvisionReport, ProvisionReport
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err, next_step, note, out, warn
from orchestrator.view.outcomes import group_by_message
from orchestrator.view.progress import delayed_line, format_compiling
from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.api.bundle import compile_progress

_MAX_CHANGE = 160


class ProvisionProgress:
    """One line for the current stage: `packages: 12 left: sw1:3,sw2:7-17`.

    Between stages this computer downloads packages and compiles the agent: then the line says so.
    """

    def __init__(self) -> None:
        self._title = ""
        self._left: dict[Phone, str] = {}
        self._compiling = ""
        self._idle_since = time.monotonic()

    def __call__(self, event: Event) -> None:
        match event:
            case Note(message=message):
                note(message)
            case StageStarted(title=title, phones=phones):
                self._title, self._left = title, dict.fromkeys(phones, "")
            case StepStarted(phone=phone, step=step):
                self._left[phone] = step
            case StepFinished(phone=phone, result=result) if err.is_terminal and result.status is StepStatus.FAILED:
                err.print(Text(f"{phone} failed at {result.step}: {one_line(result.error or '', 200)}", "red"))
            case PhoneFinished(phone=phone):
                self._left.pop(phone, None)
                self._idle_since = time.monotonic()

    def compiled(self, done: int, total: int) -> None:
        self._compiling = "" if done == total else format_compiling(done, total)

    def line(self) -> str:
        if not self._left:
            idle_s = format_clock(time.monotonic() - self._idle_since)
            return f"{self._compiling or 'preparing packages and the agent'} … {idle_s}"
        steps = {step for step in self._left.values() if step}
        what = f"{self._title} ({', '.join(sorted(steps))})" if steps - {self._title} else self._title
        return f"{what}: {len(self._left)} left: {one_line(fold(self._left), 60)}"


@contextmanager
def provision_progress() -> Iterator[OnEvent]:
    """On a terminal only; elsewhere the final report lists everything."""
    progress = ProvisionProgress()
    with compile_progress(progress.compiled), delayed_line(progress.line):
        yield progress


def print_report(report: ProvisionReport, retry: str) -> None:
    print_warnings(report.phones)
    if report.dry_run:
        _print_plan(report)
    else:
        _print_done(report)
    if unfinished := report.of(StepStatus.UNFINISHED):
        print_unfinished(unfinished)
        next_step("clusterctl provision", "continue")
    if report.failed:
        print_table(err, render_failures(report.failed))
        next_step(retry, "when the causes are fixed")


def print_warnings(reports: Iterable[StepSummary]) -> None:
    warnings = ((each.phone, warning) for each in reports for warning in each.warnings)
    for message, phones in group_by_message(warnings).items():
        warn(f"{fold(phones)} {message}")


def print_unfinished(reports: Sequence[StepSummary]) -> None:
    err.print(Text(f"{count_of(reports, 'phone')} not finished ({_ports(reports)})", "yellow"), soft_wrap=True)


def _print_plan(report: ProvisionReport) -> None:
    changes = ((each.phone, change) for each in report for change in each.changes)
    for change, phones in group_by_message(changes).items():
        out.print(Text(f"{fold(phones)} would {one_line(change, _MAX_CHANGE)}"), soft_wrap=True)
    if ready := report.of(StepStatus.OK):
        out.print(f"{count_of(ready, 'phone')} ready, nothing to change")


def _print_done(report: ProvisionReport) -> None:
    changed, ready = report.of(StepStatus.CHANGED), report.of(StepStatus.OK)
    changes = ((each.phone, change) for each in changed for change in each.changes)
    for change, phones in group_by_message(changes).items():
        err.print(Text(f"{fold(phones)}: {one_line(change, _MAX_CHANGE)}", "dim"), soft_wrap=True)
    if changed:
        out.print(
            Text(f"{count_of(changed, 'phone')} ready after changes ({_ports(changed)})", "green"), soft_wrap=True
        )
    if ready:
        out.print(Text(f"{count_of(ready, 'phone')} ready, nothing to change", "green"))


def render_failures(failed: Iterable[PhoneProvisionReport]) -> FitTable:
    table = FitTable(
        "phone",
        Column("port", priority=2),
        Column("step", priority=1),
        Column("cause", wrap=True),
        Column("what to do", wrap=True),
    )
    for report in failed:
        if failure := report.failure:
            cells = (report.phone.name, report.phone.where, failure.step, failure.error or "", failure.remedy or "")
            table.add_row(*map(one_line, cells))
    return table


def _ports(reports: Iterable[StepSummary]) -> str:
    return fold(report.phone for report in reports)
