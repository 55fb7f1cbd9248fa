"""A provision on the terminal: who is left while it runs; who is ready, what would change, what failed afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.provision.events import Event, Note, OnEvent, PhoneFinished, StageStarted, StepFinished, StepStarted
from orchestrator.provision.report import PhoneReport, Report, StepStatus
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step, note, out, warn
from orchestrator.view.width import wide_enough

_LONGEST_CHANGE = 160


class _Progress:
    """One line for the stage under way: `packages: 12 of 138 left: sw1:3,sw2:7-17`."""

    def __init__(self, show: Live | None) -> None:
        self._show = show
        self._title = ""
        self._left: dict[Phone, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Note(message=message):
                note(message)
            case StageStarted(title=title, phones=phones):
                self._title, self._left = title, dict.fromkeys(phones, "")
            case StepStarted(phone=phone, step=step):
                self._left[phone] = step
            case StepFinished(phone=phone, result=result) if self._show and result.status is StepStatus.FAILED:
                err.print(Text(f"{phone} failed at {result.step}: {one_line(result.error or '', 200)}", "red"))
            case PhoneFinished(phone=phone):
                self._left.pop(phone, None)
        if self._show:
            self._show.update(self._line())

    def _line(self) -> Text:
        if not self._left:
            return Text()
        steps = {step for step in self._left.values() if step}
        what = f"{self._title} ({', '.join(sorted(steps))})" if steps - {self._title} else self._title
        return Text(f"{what}: {len(self._left)} left: {one_line(fold(self._left), 60)}", "dim")


@contextmanager
def watching() -> Iterator[OnEvent]:
    """Progress and early failures on a terminal only: elsewhere the report at the end has them all."""
    if not err.is_terminal:
        yield _Progress(None)
        return
    with Live(console=err, transient=True, refresh_per_second=4) as live:
        yield _Progress(live)


def print_report(report: Report, retry: str) -> None:
    for message, phones in _alike((each.phone, warning) for each in report for warning in each.warnings):
        warn(f"{fold(phones)} {message}")
    if report.dry_run:
        _print_plan(report)
    else:
        _print_done(report)
    if unfinished := report.of(StepStatus.UNFINISHED):
        err.print(Text(f"{_count(unfinished)} not finished ({_ports(unfinished)})", "yellow"), soft_wrap=True)
        next_step("clusterctl provision", "to go on")
    if report.failed:
        wide_enough(err).print(_failures(report.failed))
        next_step(retry, "when the causes are gone")


def _print_plan(report: Report) -> None:
    for change, phones in _alike((each.phone, change) for each in report for change in each.changes):
        out.print(Text(f"{fold(phones)} would {one_line(change, _LONGEST_CHANGE)}"), soft_wrap=True)
    if ready := report.of(StepStatus.OK):
        out.print(f"{_count(ready)} ready, nothing to change")


def _print_done(report: Report) -> None:
    changed, ready = report.of(StepStatus.CHANGED), report.of(StepStatus.OK)
    for change, phones in _alike((each.phone, change) for each in changed for change in each.changes):
        err.print(Text(f"{fold(phones)}: {one_line(change, _LONGEST_CHANGE)}", "dim"), soft_wrap=True)
    if changed:
        out.print(Text(f"{_count(changed)} ready after changes ({_ports(changed)})", "green"), soft_wrap=True)
    if ready:
        out.print(Text(f"{_count(ready)} ready, nothing to change", "green"))


def _failures(failed: Iterable[PhoneReport]) -> Table:
    table = Table("phone", "port", "step", "cause", "what to do", box=None, pad_edge=False, header_style="dim")
    table.columns[3].overflow = table.columns[4].overflow = "fold"
    for report in failed:
        if failure := report.failure:
            cells = (report.phone.name, report.phone.where, failure.step, failure.error or "", failure.remedy or "")
            table.add_row(*(Text(one_line(cell)) for cell in cells))
    return table


def _alike(items: Iterable[tuple[Phone, str]]) -> Iterable[tuple[str, list[Phone]]]:
    """Phones of which the same is said, together."""
    groups: dict[str, list[Phone]] = {}
    for phone, text in items:
        groups.setdefault(text, []).append(phone)
    return groups.items()


def _ports(reports: Iterable[PhoneReport]) -> str:
    return fold(report.phone for report in reports)


def _count(reports: tuple[PhoneReport, ...]) -> str:
    return f"{len(reports)} phone{'' if len(reports) == 1 else 's'}"
