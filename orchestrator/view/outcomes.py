"""Results from many phones, folded: successes on one line, failures in a table with what to do.

sw1:1-45 ok; sw1:46 unreachable: no SSH banner within 8 s
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from orchestrator.fleet.result import Outcome, Outcomes, Status
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step
from orchestrator.view.table import Column, FitTable, print_table

_MAX_ROWS = 20
_STYLE = {Status.OK: "green", Status.FAILED: "red", Status.UNREACHABLE: "yellow", Status.CANCELLED: "dim"}


def summary(outcomes: Iterable[Outcome[Any]]) -> str:
    """One clause per distinct result, with the phones it applies to."""
    return "; ".join(f"{_ports(group)} {_what(group[0])}" for group in _groups(outcomes))


def print_outcomes(outcomes: Outcomes[Any], retry: str | None = None) -> None:
    """On stderr. Ends with `retry --limit @failed` if a phone failed; the caller has recorded which."""
    err.print(_styled_summary(outcomes), soft_wrap=True)
    failed = [group for group in _groups(outcomes.failures) if group[0].status is not Status.CANCELLED]
    if failed:
        print_table(err, render_failures(failed))
    if len(failed) > _MAX_ROWS:
        err.print(f"and {len(failed) - _MAX_ROWS} more", style="dim")
    if retry and not outcomes.ok:
        next_step(f"{retry} --limit @failed")


def as_json(outcomes: Outcomes[Any]) -> list[dict[str, Any]]:
    return [
        {
            "phone": outcome.phone.name,
            "port": outcome.phone.where,
            "status": outcome.status.value,
            "phase": outcome.phase and outcome.phase.value,
            "error": outcome.error,
            "code": outcome.code,
            "remedy": outcome.remedy,
            "seconds": round(outcome.seconds, 3),
        }
        for outcome in outcomes
    ]


def _groups(outcomes: Iterable[Outcome[Any]]) -> list[list[Outcome[Any]]]:
    """Equal outcomes together, in ring order of their first phones; successes first."""
    groups: dict[tuple[object, ...], list[Outcome[Any]]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.status, outcome.phase, outcome.error), []).append(outcome)
    return sorted(groups.values(), key=lambda group: group[0].status is not Status.OK)


def _ports(group: list[Outcome[Any]]) -> str:
    return fold(outcome.phone for outcome in group)


def _what(outcome: Outcome[Any]) -> str:
    if outcome.error is None or outcome.status is Status.CANCELLED:
        return outcome.status.value
    return f"{outcome.status.value}: {one_line(outcome.error, 100)}"


def _styled_summary(outcomes: Outcomes[Any]) -> Text:
    """Only the phones: the causes are in the table below."""
    clauses = [
        Text(f"{fold(outcome.phone for outcome in alike)} {status.value}", _STYLE[status])
        for status in Status
        if (alike := [outcome for outcome in outcomes if outcome.status is status])
    ]
    return Text("; ").join(clauses)


def render_failures(groups: list[list[Outcome[Any]]]) -> FitTable:
    table = FitTable(
        "phone",
        Column("port", wrap=True),
        Column("phase", priority=1),
        Column("cause", wrap=True),
        Column("what to do", wrap=True),
    )
    for group in groups[:_MAX_ROWS]:
        first = group[0]
        name = first.phone.name if len(group) == 1 else f"{len(group)} phones"
        cells = (name, _ports(group), first.phase or "", one_line(first.error or ""), one_line(first.remedy or ""))
        table.add_row(*cells)
    return table


def format_phones(phones: Sequence[Phone]) -> str:
    """One phone by name, several as a compact selector: sw1:1-8."""
    return phones[0].name if len(phones) == 1 else fold(phones)


def group_by_message(items: Iterable[tuple[Phone, str]]) -> dict[str, list[Phone]]:
    """Phones with the same message together, so that it is printed once."""
    groups: dict[str, list[Phone]] = {}
    for phone, message in items:
        groups.setdefault(message, []).append(phone)
    return groups
