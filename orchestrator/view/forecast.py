"""Forecasts: a table, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from orchestrator.plan.forecast import published
from orchestrator.text import count_of
from orchestrator.view.console import next_step, out
from orchestrator.view.table import Column, FitTable, print_table

if TYPE_CHECKING:
    from orchestrator.plan.forecast.device_model import PhoneModel
    from orchestrator.plan.forecast.forecast import Forecast, RackModel

GOOD_EFFICIENCY = 0.95


def print_forecasts(rack: RackModel, phone: PhoneModel, forecasts: Sequence[Forecast], *, measured: bool) -> None:
    print_table(out, render_forecasts(rack, forecasts))
    out.print(_assumptions(rack, phone, forecasts, measured=measured), markup=False)
    best = max(forecasts, key=lambda each: each.efficiency)
    next_step(f"clusterctl launch --model {best.network} --batch {best.efficient_batch or best.batch} --dry-run")


def as_document(rack: RackModel, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    return {
        "modeled": True,
        "phones": rack.phones,
        "switches": len(set(rack.switches)),
        "links": asdict(rack.links),
        "networks": [{**asdict(each), "efficiency": each.efficiency} for each in forecasts],
    }


def render_forecasts(rack: RackModel, forecasts: Sequence[Forecast]) -> FitTable:
    switches = count_of(len(set(rack.switches)), "switch")
    columns = [
        Column("model"),
        Column("gradient", right=True, priority=5),
        Column("batch", right=True, priority=1),
        Column("compute", right=True, priority=3),
        Column("allreduce", right=True, priority=3),
        Column("step", right=True),
        Column("images/s", right=True),
        Column("efficiency", right=True),
        Column("95 % at", right=True, priority=4),
        Column("max batch", right=True, priority=2),
    ]
    if rack.phones == published.PHONES:
        columns.append(Column("Na et al.", right=True, priority=6))
    table = FitTable(
        *columns, title=f"Modeled training step on {count_of(rack.phones, 'phone')} and {switches} (not measured)"
    )
    for each in forecasts:
        table.add_row(*_cells(each), *([_published(each)] if rack.phones == published.PHONES else []))
    return table


def _cells(each: Forecast) -> list[str | Text]:
    return [
        each.network,
        f"{each.gradient_bytes / 1e6:.1f} MB",
        str(each.batch),
        f"{each.compute_s:.2f} s",
        f"{each.communication_s:.2f} s",
        f"{each.step_s:.2f} s",
        f"{each.images_per_s:,.0f}",
        Text(f"{each.efficiency:.1%}", "green" if each.efficiency >= GOOD_EFFICIENCY else "yellow"),
        "none" if each.efficient_batch is None else str(each.efficient_batch),
        str(each.max_batch),
    ]


def _published(each: Forecast) -> str:
    share = published.EFFICIENCY.get(each.network)
    return f"{share:.1%}" if share else ""


def _assumptions(rack: RackModel, phone: PhoneModel, forecasts: Sequence[Forecast], *, measured: bool) -> str:
    methods = ", ".join(dict.fromkeys(map(_allreduce, forecasts)))
    low, high = phone.sustained
    speed = (
        "compute speed as given (--images-per-s)"
        if measured
        else f"{phone.name}, cold, modeled from instruction counts (a hot phone runs at {low:.0%} to {high:.0%})"
    )
    return (
        f"Assumptions: identical phones: {speed}; allreduce: {methods}; {rack.links.intra_switch * 8 / 1e6:.0f} Mbit/s "
        f"payload, {rack.links.latency_s * 1e3:g} ms latency.\n"
        "batch: images per phone and step; efficiency: compute time / step time; "
        "95 % at: smallest batch that reaches 95 % efficiency; max batch: largest that fits in memory."
    )


def _allreduce(each: Forecast) -> str:
    groups = f" in groups of {each.collective.group}" if each.collective.group else ""
    return f"{each.collective.algorithm}{groups}, {each.collective.wire}"
