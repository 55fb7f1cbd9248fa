"""A bootstrap on the terminal: who is left and what each waits for; afterwards who is ready, and what failed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.bootstrap.events import Doing, Event, Note, OnEvent, PhoneDone, Started, StepDone, Waiting
from orchestrator.bootstrap.report import PhoneReport, Report
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.provision.report import StepStatus
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err, next_step, note, out, warn
from orchestrator.view.width import wide_enough

_ROWS = 20


class _Progress:
    """One line for each phone that is left. Without a terminal: what somebody has to do, once."""

    def __init__(self, show: Live | None) -> None:
        self._show = show
        self._left: dict[Phone, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Note(message=message):
                note(message)
            case Started(phones=phones):
                self._left = dict.fromkeys(phones, "")
            case Doing(phone=phone, what=what):
                self._left[phone] = what
            case Waiting(phone=phone, what=what):
                self._wait(phone, what)
            case StepDone(phone=phone, result=result) if self._show and result.status is StepStatus.FAILED:
                err.print(Text(f"{phone.name} failed at {result.step}: {one_line(result.error or '', 200)}", "red"))
            case PhoneDone(phone=phone):
                self._left.pop(phone, None)
        if self._show:
            self._show.update(self._table())

    def _wait(self, phone: Phone, what: str) -> None:
        if not self._show and self._left.get(phone) != what:
            note(f"{phone.name} ({phone.where}): {one_line(what)}")
        self._left[phone] = what

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        for phone, what in list(self._left.items())[:_ROWS]:
            table.add_row(Text(phone.name), Text(phone.where, "dim"), Text(one_line(what, 120)))
        if len(self._left) > _ROWS:
            table.add_row(Text(f"and {len(self._left) - _ROWS} more", "dim"))
        return table


@contextmanager
def watching() -> Iterator[OnEvent]:
    if not err.is_terminal:
        yield _Progress(None)
        return
    with Live(console=err, transient=True, refresh_per_second=4) as live:
        yield _Progress(live)


def print_report(report: Report) -> None:
    for message, phones in _alike((each.phone, warning) for each in report.phones for warning in each.warnings):
        warn(f"{fold(phones)} {message}")
    if report.dry_run:
        _print_plan(report)
    else:
        _print_done(report)
    if unfinished := report.of(StepStatus.UNFINISHED):
        err.print(Text(f"{_count(unfinished)} not finished ({_ports(unfinished)})", "yellow"), soft_wrap=True)
    if report.failed:
        wide_enough(err).print(_failures(report.failed))
        next_step("the same command again: what is done stays done", "when the causes are gone")
    _print_next(report)


def _print_plan(report: Report) -> None:
    for each in report.phones:
        if each.failure:
            continue
        out.print(Text(f"{each.phone.name} ({each.phone.where}) is {each.serial}, {one_line(each.told)}"))
        for action in each.actions:
            out.print(Text(f"  would {one_line(action.what, 200)}"), soft_wrap=True)
            if action.adb:
                line = shlex.join(["adb", "-s", each.name, *action.adb])
                out.print(Text(f"    $ {one_line(line, 4000)}", "dim"), soft_wrap=True)
        if not each.actions:
            out.print("  nothing to change")


def _print_done(report: Report) -> None:
    ready = (*report.of(StepStatus.CHANGED), *report.of(StepStatus.OK))
    for each in ready:
        told = "" if each.changes else ", nothing to change"
        out.print(
            Text(
                f"{each.phone.name} ({each.phone.where}) is {each.serial}, {one_line(each.told)}: ready{told}", "green"
            )
        )


def _print_next(report: Report) -> None:
    if report.dry_run or not report.ok:
        return
    if report.to_come:
        note(f"{count_of(report.to_come, 'phone')} of the inventory to come: {fold(report.to_come)}")
    else:
        next_step("clusterctl provision", "when the phones are on their Ethernet adaptors")


def _failures(failed: Iterable[PhoneReport]) -> Table:
    table = Table(
        "phone", "port", "serial", "step", "cause", "what to do", box=None, pad_edge=False, header_style="dim"
    )
    table.columns[4].overflow = table.columns[5].overflow = "fold"
    for each in failed:
        if step := each.failure:
            cells = (each.phone.name, each.phone.where, each.serial, step.step, step.error or "", step.remedy or "")
            table.add_row(*(Text(one_line(cell)) for cell in cells))
    return table


def _alike(items: Iterable[tuple[Phone, str]]) -> Iterable[tuple[str, list[Phone]]]:
    groups: dict[str, list[Phone]] = {}
    for phone, text in items:
        groups.setdefault(text, []).append(phone)
    return groups.items()


def _ports(reports: Iterable[PhoneReport]) -> str:
    return fold(each.phone for each in reports)


def _count(reports: tuple[PhoneReport, ...]) -> str:
    return count_of(reports, "phone")
