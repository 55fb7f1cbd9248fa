"""`bootstrap` on the terminal: what each remaining phone is doing or waiting for; then who is ready and what failed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.text import Text

from orchestrator.bootstrap.report import BootstrapReport, Event, OnEvent, PhoneBootstrapReport, Waiting
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.provision.engine import Note, PhoneFinished, StageStarted, StepFinished, StepStarted, StepStatus
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err, next_step, note, out
from orchestrator.view.provision import print_unfinished, print_warnings
from orchestrator.view.table import Column, FitTable, print_table

_MAX_ROWS = 20


class BootstrapProgress:
    """One line per remaining phone. Without a terminal, only what a person has to do, once."""

    def __init__(self, show: Live | None) -> None:
        self._show = show
        self._left: dict[Phone, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Note(message=message):
                note(message)
            case StageStarted(phones=phones):
                self._left = dict.fromkeys(phones, "")
            case StepStarted(phone=phone, step=step):
                self._left[phone] = step
            case Waiting(phone=phone, reason=reason):
                self._wait(phone, reason)
            case StepFinished(phone=phone, result=result) if self._show and result.status is StepStatus.FAILED:
                err.print(Text(f"{phone.name} failed at {result.step}: {one_line(result.error or '', 200)}", "red"))
            case PhoneFinished(phone=phone):
                self._left.pop(phone, None)
        if self._show:
            self._show.update(self.render())

    def _wait(self, phone: Phone, what: str) -> None:
        if not self._show and self._left.get(phone) != what:
            note(f"{phone.name} ({phone.where}): {one_line(what)}")
        self._left[phone] = what

    def render(self) -> FitTable:
        table = FitTable("", Column("", style="dim"), Column("", wrap=True))
        for phone, what in list(self._left.items())[:_MAX_ROWS]:
            table.add_row(phone.name, phone.where, one_line(what, 120))
        if len(self._left) > _MAX_ROWS:
            table.add_row(Text(f"and {len(self._left) - _MAX_ROWS} more", "dim"))
        return table


@contextmanager
def bootstrap_progress() -> Iterator[OnEvent]:
    if not err.is_terminal:
        yield BootstrapProgress(None)
        return
    with Live(console=err, transient=True, refresh_per_second=4) as live:
        yield BootstrapProgress(live)


def print_report(report: BootstrapReport) -> None:
    print_warnings(report.phones)
    if report.dry_run:
        _print_plan(report)
    else:
        _print_done(report)
    if unfinished := report.of(StepStatus.UNFINISHED):
        print_unfinished(unfinished)
    if report.failed:
        print_table(err, render_failures(report.failed))
        next_step("run the same command again (completed steps are skipped)", "when the causes are fixed")
    _print_next_step(report)


def _print_plan(report: BootstrapReport) -> None:
    for each in report.phones:
        if each.failure:
            continue
        out.print(Text(f"{each.phone.name} ({each.phone.where}) is {each.serial}, {one_line(each.device)}"))
        for action in each.actions:
            out.print(Text(f"  would {one_line(action.description, 200)}"), soft_wrap=True)
            if action.adb:
                line = shlex.join(["adb", "-s", each.adb_name, *action.adb])
                out.print(Text(f"    $ {one_line(line, 4000)}", "dim"), soft_wrap=True)
        if not each.actions:
            out.print("  nothing to change")


def _print_done(report: BootstrapReport) -> None:
    ready = (*report.of(StepStatus.CHANGED), *report.of(StepStatus.OK))
    for each in ready:
        suffix = "" if each.changes else ", nothing to change"
        out.print(
            Text(
                f"{each.phone.name} ({each.phone.where}) is {each.serial}, {one_line(each.device)}: ready{suffix}",
                "green",
            )
        )


def _print_next_step(report: BootstrapReport) -> None:
    if report.dry_run or not report.ok:
        return
    if report.remaining:
        note(f"{count_of(report.remaining, 'phone')} in the inventory not set up yet: {fold(report.remaining)}")
    else:
        next_step("clusterctl provision", "when the phones are connected to Ethernet")


def render_failures(failed: Iterable[PhoneBootstrapReport]) -> FitTable:
    table = FitTable(
        "phone",
        Column("port", priority=2),
        Column("serial", priority=1),
        Column("step", priority=3),
        Column("cause", wrap=True),
        Column("what to do", wrap=True),
    )
    for each in failed:
        if step := each.failure:
            cells = (each.phone.name, each.phone.where, each.serial, step.step, step.error or "", step.remedy or "")
            table.add_row(*map(one_line, cells))
    return table
