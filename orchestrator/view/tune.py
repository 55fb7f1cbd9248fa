"""Results of `tune`: one table per kind of phone, and the settings that launch will use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.text import Text

from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.tune.compute_choice import describe_config
from orchestrator.tune.measure import BEST, KindResult, OnRow
from orchestrator.view.console import err, next_step, out
from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.contract.replies import TuneRow
from phone_agent.contract.tune import TuneRequest


@contextmanager
def tune_progress() -> Iterator[OnRow]:
    """Every measurement as it arrives, on stderr."""

    def show(phone: Phone, row: TuneRow) -> None:
        if row.part != BEST:
            err.print(Text(f"{phone.name}: {row.part}, {row.what}: {_result(row)}", "dim"), soft_wrap=True)

    yield show


def print_tuned(found: Sequence[KindResult]) -> None:
    for each in found:
        if each.tuned is None:
            err.print(Text(f"{each.kind.name} ({each.measured_on}): {each.error}", "bold red"), soft_wrap=True)
            continue
        tuned = each.tuned
        print_table(out, render_measurements(each, tuned.rows))
        words = f"{describe_config(tuned.device_config)}: {tuned.images_per_s:.1f} images/s with {tuned.model}"
        out.print(Text(f"launch will use {words}", "green"), soft_wrap=True)
    if any(each.tuned for each in found):
        next_step("clusterctl launch")


def render_measurements(of: KindResult, rows: Sequence[TuneRow]) -> FitTable:
    table = FitTable(
        "backend",
        Column("settings", wrap=True),
        Column("s per step", right=True, wrap=True),
        Column("images/s", right=True),
        title=f"{of.kind.name}; {of.kind.driver} ({fold(of.phones)}, measured on {of.measured_on.name})",
    )
    for row in rows:
        table.add_row(row.part, row.what, *_figures(row))
    return table


def as_document(found: Sequence[KindResult], request: TuneRequest) -> dict[str, Any]:
    return {
        "model": request.model,
        "batch": request.batch,
        "kinds": [
            {
                **each.kind.as_json(),
                "phones": [phone.name for phone in each.phones],
                "measured_on": each.measured_on.name,
                "device_config": each.tuned and asdict(each.tuned.device_config),
                "images_per_s": each.tuned and each.tuned.images_per_s,
                "measured": [_document(row) for row in each.tuned.rows] if each.tuned else [],
                "error": each.error,
            }
            for each in found
        ],
    }


def _document(row: TuneRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if value is not None}


def _result(row: TuneRow) -> str:
    seconds, images = _figures(row)
    return f"{seconds} s" + (f", {images} images/s" if images else "") if row.error is None else seconds


def _figures(row: TuneRow) -> tuple[str, str]:
    if row.error is not None or row.step_s is None:
        return row.error or "", ""
    return f"{row.step_s:.4f}", "" if row.images_per_s is None else f"{row.images_per_s:.1f}"
