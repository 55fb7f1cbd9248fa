"""Forecasts, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from orchestrator.plan.forecast import published
from orchestrator.text import count_of
from orchestrator.view.console import next_step, out
from orchestrator.view.width import wide_enough

if TYPE_CHECKING:
    from orchestrator.plan.forecast.device_model import Phone
    from orchestrator.plan.forecast.forecast import Forecast, Rack

COLUMNS = ("MB", "batch", "computing", "exchange", "step", "images/s", "efficiency", "95 % from", "fits")


def print_forecasts(on: Rack, phone: Phone, found: Sequence[Forecast], *, measured: bool) -> None:
    beside = on.phones == published.PHONES
    table = Table(
        title=f"{_where(on)}: a training step, MODELLED", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("network", no_wrap=True)
    for column in (*COLUMNS, *(["Na et al."] * beside)):
        table.add_column(column, justify="right", no_wrap=True)
    for each in found:
        table.add_row(each.network, *_cells(each), *([_published(each)] * beside))
    console = wide_enough(out)
    console.print(table)
    console.print(_assumed(on, phone, found, measured=measured), markup=False, soft_wrap=True)
    best = max(found, key=lambda each: each.efficiency)
    next_step(f"clusterctl launch --model {best.network} --batch {best.enough or best.batch} --dry-run")


def as_document(on: Rack, found: Sequence[Forecast]) -> dict[str, Any]:
    return {
        "modelled": True,
        "phones": on.phones,
        "switches": len(set(on.switches)),
        "line": asdict(on.line),
        "networks": [{**asdict(each), "efficiency": each.efficiency} for each in found],
    }


def _where(on: Rack) -> str:
    switches = len(set(on.switches))
    return f"{count_of(on.phones, 'phone')} on {switches} switch{'es' * (switches > 1)}"


def _cells(each: Forecast) -> list[str | Text]:
    return [
        f"{each.gradient_bytes / 1e6:.1f}",
        str(each.batch),
        f"{each.compute_s:.2f} s",
        f"{each.communication_s:.2f} s",
        f"{each.step_s:.2f} s",
        f"{each.images_per_s:,.0f}",
        Text(f"{each.efficiency:.1%}", "green" if each.efficiency >= 0.95 else "yellow"),
        "none" if each.enough is None else str(each.enough),
        str(each.fits),
    ]


def _published(each: Forecast) -> str:
    share = published.EFFICIENCY.get(each.network)
    return f"{share:.1%}" if share else ""


def _assumed(on: Rack, phone: Phone, found: Sequence[Forecast], *, measured: bool) -> str:
    ways = ", ".join(dict.fromkeys(map(_way, found)))
    low, high = phone.sustained
    pace = (
        "computing as fast as you measured"
        if measured
        else f"{phone.name}, cold (hot ones compute at {low:.0%} to {high:.0%}), by counted instructions"
    )
    return (
        f"Assumed: all phones alike, {pace}; gradients by {ways}; "
        f"{on.line.intra_switch * 8 / 1e6:.0f} Mbit/s of payload, {on.line.latency_s * 1e3:g} ms from phone to phone. "
        f"Efficiency: computing's share of a step; "
        "95 % from: that many images a phone; fits: in its memory."
    )


def _way(each: Forecast) -> str:
    groups = f" in groups of {each.choice.group}" if each.choice.group else ""
    return f"{each.choice.algorithm}{groups} as {each.choice.wire}"
