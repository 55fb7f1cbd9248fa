"""`selftest` on the terminal: a checklist that fills in as phones answer; then the results per phone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.live import Live
from rich.text import Text

from orchestrator.inventory.model import Phone
from orchestrator.selftest.assumptions import all_assumptions
from orchestrator.selftest.document import VIRTUAL
from orchestrator.selftest.report import AssumptionResult, PhoneReport
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step, note, out
from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.contract.assumptions import Assumption, Status

_MARKS = {Status.OK: ("✓", "green"), Status.FAILED: ("✗", "bold red"), Status.UNKNOWN: ("?", "yellow")}
_MAX_PHONES = 12  # shown side by side


class Checklist:
    """Answers may arrive from any thread."""

    def __init__(self, phones: Sequence[Phone], live: Live | None) -> None:
        self._phones = phones
        self._live = live
        self._lock = threading.Lock()
        self._results: dict[tuple[str, str], Assumption | AssumptionResult] = {}

    def show(self, phone: Phone, event: Assumption | AssumptionResult) -> None:
        assumption = event.assumption if isinstance(event, AssumptionResult) else event
        with self._lock:
            self._results[phone.name, assumption.name] = event
            if self._live:
                self._live.update(self.render())

    def prompt(self, what: str) -> None:
        """The display pauses while the person acts."""
        if self._live:
            self._live.stop()
        err.print(what, style="bold", markup=False)
        input()
        if self._live:
            self._live.start()

    def render(self) -> FitTable:
        """As many checks as the screen has room for, from the first open one on."""
        shown = self._phones[:_MAX_PHONES]
        phones = (Column(phone.name, priority=priority) for priority, phone in enumerate(shown))
        table = FitTable("check", *phones, Column("decides", priority=len(shown), style="dim"))
        for assumption in self._visible_checks(shown):
            marks = [self._mark(phone, assumption) for phone in shown]
            table.add_row(assumption.name, *marks, assumption.statement)
        return table

    def _visible_checks(self, phones: Sequence[Phone]) -> Sequence[Assumption]:
        assumptions = all_assumptions(len(self._phones))
        room = max(5, err.height - 3)
        open_checks = (index for index, assumption in enumerate(assumptions) if not self._done(assumption, phones))
        start = min(next(open_checks, len(assumptions)) - room // 2, len(assumptions) - room)
        return assumptions[max(0, start) :][:room]

    def _done(self, assumption: Assumption, phones: Sequence[Phone]) -> bool:
        return all(isinstance(self._results.get((phone.name, assumption.name)), AssumptionResult) for phone in phones)

    def _mark(self, phone: Phone, assumption: Assumption) -> Text:
        event = self._results.get((phone.name, assumption.name))
        if isinstance(event, AssumptionResult):
            return Text(*_MARKS[event.status])
        return Text("…" if event else "", "cyan")


@contextmanager
def checklist(phones: Sequence[Phone]) -> Iterator[Checklist]:
    """On a terminal only; elsewhere the final report lists everything."""
    if not err.is_terminal:
        yield Checklist(phones, None)
        return
    with Live(console=err, transient=True, refresh_per_second=4) as live:
        yield Checklist(phones, live)


def print_reports(reports: Sequence[PhoneReport], files: Sequence[Path]) -> None:
    for report, file in zip(reports, files, strict=True):
        out.print(_headline(report), soft_wrap=True)
        if report.virtual:
            note(VIRTUAL)
        print_table(out, render_results(report))
        if report.error:
            out.print(Text(f"selftest did not finish: {one_line(report.error)}", "red"), soft_wrap=True)
        if report.remedy:
            next_step(one_line(report.remedy), "try")
        out.print(Text(f"{file}"), soft_wrap=True)
    if any(not report.virtual for report in reports):
        note("safe to share: the files contain no keys, and MAC addresses and serial numbers only with --show-ids")


def _headline(report: PhoneReport) -> Text:
    line = Text.assemble((report.phone.name, "bold"), f" ({report.phone.where})  ")
    for status, count in report.count().items():
        mark, style = _MARKS[Status(status)]
        line.append(f"{mark} {count} {status}  ", style)
    return line


def render_results(report: PhoneReport) -> FitTable:
    table = FitTable("", "check", Column("expected", wrap=True, style="dim", priority=1), Column("found", wrap=True))
    for result in report.results:
        name = Text(result.assumption.name, "bold red" if result.blocks_training else "")
        table.add_row(Text(*_MARKS[result.status]), name, result.assumption.statement, one_line(result.detail, 600))
    return table
