"""A selftest on the terminal: a checklist that fills while phones answer; afterwards what each of them said."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.inventory.model import Phone
from orchestrator.selftest.assumptions import all_beliefs
from orchestrator.selftest.document import VIRTUAL
from orchestrator.selftest.report import Answer, PhoneReport
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step, note, out
from orchestrator.view.width import wide_enough
from phone_agent.contract.assumptions import Belief, Status

_LOOK = {Status.OK: ("✓", "green"), Status.FAILED: ("✗", "bold red"), Status.UNKNOWN: ("?", "yellow")}
_COLUMNS = 12  # phones shown side by side


class Checklist:
    """Told of answers from any thread."""

    def __init__(self, phones: Sequence[Phone], live: Live | None) -> None:
        self._phones = phones
        self._live = live
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], Belief | Answer] = {}

    def show(self, phone: Phone, said: Belief | Answer) -> None:
        belief = said.belief if isinstance(said, Answer) else said
        with self._lock:
            self._said[phone.name, belief.name] = said
            if self._live:
                self._live.update(self._table())

    def ask(self, what: str) -> None:
        """The list stands still while a person is busy."""
        if self._live:
            self._live.stop()
        err.print(what, style="bold", markup=False)
        input()
        if self._live:
            self._live.start()

    def _table(self) -> Table:
        """From the first open check on, as many as the screen has room for."""
        shown = self._phones[:_COLUMNS]
        table = Table(
            "check", *(phone.name for phone in shown), "settles", box=None, pad_edge=False, header_style="dim"
        )
        for belief in self._in_sight(shown):
            marks = [self._mark(phone, belief) for phone in shown]
            table.add_row(belief.name, *marks, Text(belief.settles, "dim", no_wrap=True, overflow="ellipsis"))
        return table

    def _in_sight(self, phones: Sequence[Phone]) -> Sequence[Belief]:
        wanted = all_beliefs(len(self._phones))
        room = max(5, err.height - 3)
        open_ones = (place for place, belief in enumerate(wanted) if not self._done(belief, phones))
        start = min(next(open_ones, len(wanted)) - room // 2, len(wanted) - room)
        return wanted[max(0, start) :][:room]

    def _done(self, belief: Belief, phones: Sequence[Phone]) -> bool:
        return all(isinstance(self._said.get((phone.name, belief.name)), Answer) for phone in phones)

    def _mark(self, phone: Phone, belief: Belief) -> Text:
        said = self._said.get((phone.name, belief.name))
        if isinstance(said, Answer):
            return Text(*_LOOK[said.status])
        return Text("…" if said else "", "cyan")


@contextmanager
def checklist(phones: Sequence[Phone]) -> Iterator[Checklist]:
    """On a terminal only: elsewhere the report at the end has it all."""
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
        wide_enough(out).print(_answers(report))
        if report.error:
            out.print(Text(f"the phone could not be asked to the end: {one_line(report.error)}", "red"), soft_wrap=True)
        if report.remedy:
            next_step(one_line(report.remedy), "try")
        out.print(Text(f"{file}"), soft_wrap=True)
    if any(not report.virtual for report in reports):
        note("the files hold no keys, and no MAC address or serial number unless you asked for them: they can be sent")


def _headline(report: PhoneReport) -> Text:
    line = Text.assemble((report.phone.name, "bold"), f" ({report.phone.where})  ")
    for status, count in report.count().items():
        mark, style = _LOOK[Status(status)]
        line.append(f"{mark} {count} {status}  ", style)
    return line


def _answers(report: PhoneReport) -> Table:
    table = Table("", "check", "we say", "found", box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.columns[2].ratio, table.columns[3].ratio = 2, 3
    table.columns[3].overflow = "fold"
    for answer in report.answers:
        name = Text(answer.belief.name, "bold red" if answer.stops else "")
        told = Text(one_line(answer.told, 600))
        table.add_row(Text(*_LOOK[answer.status]), name, Text(answer.belief.settles, "dim"), told)
    return table
