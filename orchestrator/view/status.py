"""The whole rack on one screen.

Up to 16 phones: a table with every reading. More: each switch as a grid of its ports, and a list of the phones that
need attention.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator.health.phone_health import ACTIVE_RUN, PhoneHealth, PhoneState
from orchestrator.health.vitals import Vitals
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import count_of
from orchestrator.view.console import next_step
from orchestrator.view.table import Column, FitTable, for_tables

MAX_TABLE_PHONES = 16
_CELL_WIDTH = 9
_MARKS = {
    PhoneState.RUNNING: ("●", "green"),
    PhoneState.READY: ("○", "cyan"),
    PhoneState.UNFIT: ("◇", "yellow"),
    PhoneState.HOT: ("▲", "bold red"),
    PhoneState.FAILED: ("✗", "bold magenta"),
    PhoneState.UNPROVISIONED: ("+", "yellow"),
    PhoneState.OFF: ("·", "red"),
}
_WORDS = {PhoneState.FAILED: "fail", PhoneState.UNPROVISIONED: "new", PhoneState.OFF: "off"}
_WATCH_EVERY_S = 3.0
_WORST_FIRST = (
    PhoneState.FAILED,
    PhoneState.HOT,
    PhoneState.OFF,
    PhoneState.UNPROVISIONED,
    PhoneState.UNFIT,
    PhoneState.RUNNING,
    PhoneState.READY,
)


def render_status(cluster: str, health: Sequence[PhoneHealth], size: tuple[int, int]) -> RenderableType:
    """`size`: columns and rows of the screen; the list of phones that need attention is shortened to fit."""
    top = _headline(cluster, health)
    if len(health) <= MAX_TABLE_PHONES:
        return Group(top, render_phones(health), *_noteworthy(health, room=MAX_TABLE_PHONES))
    racks = [line for rack in _by_switch(health) for line in _rack(*rack, size[0])]
    room = max(4, size[1] - len(racks) - 8)
    return Group(top, *racks, _legend(), *_noteworthy(health, room))


def as_document(cluster: str, health: Sequence[PhoneHealth]) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "totals": {state.value: count for state, count in _totals(health)},
        "phones": [_phone_json(each) for each in health],
    }


def _phone_json(health: PhoneHealth) -> dict[str, Any]:
    phone = health.phone
    return {
        "name": phone.name,
        "switch": phone.switch,
        "port": phone.port,
        "address": str(phone.address),
        "state": health.state.value,
        "notes": list(health.notes),
        "remedy": health.remedy,
        "vitals": None if health.vitals is None else asdict(health.vitals),
    }


def _headline(cluster: str, health: Sequence[PhoneHealth]) -> Text:
    line = Text.assemble((cluster, "bold"), f"  {count_of(health, 'phone')}  ")
    for state, count in _totals(health):
        mark, style = _MARKS[state]
        line.append(f" {mark} {count} {state.value} ", style)
    for run in _runs(health):
        line.append(f"\n{run}", "green")
    return line


def _totals(health: Iterable[PhoneHealth]) -> list[tuple[PhoneState, int]]:
    counts = Counter(each.state for each in health)
    return [(state, counts[state]) for state in PhoneState if counts[state]]


def _runs(health: Iterable[PhoneHealth]) -> list[str]:
    steps: dict[str, list[int]] = {}
    for run in filter(None, (each.active_run for each in health)):
        steps.setdefault(run.id, []).append(run.step or 0)
    return [f"{run_id}  step {max(each)} on {count_of(each, 'phone')}" for run_id, each in steps.items()]


def _by_switch(health: Sequence[PhoneHealth]) -> list[tuple[str, list[PhoneHealth]]]:
    racks: dict[str, list[PhoneHealth]] = {}
    for each in health:
        racks.setdefault(each.phone.switch, []).append(each)
    return list(racks.items())


def _rack(switch: str, health: Sequence[PhoneHealth], width: int) -> list[RenderableType]:
    columns = min(12, max(1, (width - 2) // _CELL_WIDTH))
    rows = [health[start : start + columns] for start in range(0, len(health), columns)]
    cells = [Text.assemble("  ", *map(_cell, row)) for row in rows]
    return [Text(), _rack_line(switch, health), *cells, _rack_figures([each.vitals for each in health if each.vitals])]


def _rack_line(switch: str, health: Sequence[PhoneHealth]) -> Text:
    states = Counter(each.state for each in health)
    line = Text.assemble((switch, "bold"), f"  {count_of(health, 'phone')}")
    for state in _WORST_FIRST:
        if states[state]:
            line.append(f" · {states[state]} {state.value}", _MARKS[state][1])
    return line


def _rack_figures(vitals: Sequence[Vitals]) -> Text:
    versions = sorted({each.agent_version for each in vitals if each.agent_version})
    figures = (
        _spread("{} °C", (each.temperature_c for each in vitals)),
        _spread("battery {}%", (each.battery.percent if each.battery else None for each in vitals)),
        _spread("clock {}% of max", map(_clock_percent, vitals)),
        _least("memory {} free", (each.memory_free_mb for each in vitals)),
        _least("disk {} free", (each.disk_free_mb for each in vitals)),
        f"agent {'/'.join(versions)}" if versions else "",
    )
    return Text("      " + " · ".join(figure for figure in figures if figure), "dim", no_wrap=True, overflow="ellipsis")


def _spread(words: str, values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return words.format(low if low == high else f"{low}-{high}")


def _least(words: str, megabytes: Iterable[int | None]) -> str:
    known = [value for value in megabytes if value is not None]
    return words.format(f"≥ {_gigabytes(min(known))}") if known else ""


def _cell(health: PhoneHealth) -> Text:
    mark, style = _MARKS[health.state]
    celsius = health.vitals.temperature_c if health.vitals else None
    value = _WORDS.get(health.state) or ("?" if celsius is None else f"{celsius:.0f}°")
    flag = "!" if health.notes and health.state in {PhoneState.READY, PhoneState.RUNNING} else " "
    return Text.assemble((f"{health.phone.port:>2}", "dim"), (f" {mark}{value:<4}", style), (flag, "bold yellow"))


def _legend() -> Text:
    line = Text("\n  port ", "dim")
    for state, (mark, style) in _MARKS.items():
        line.append(f" {mark} {state.value} ", style)
    return line.append(" ! see below\n", "bold yellow")


def _noteworthy(health: Sequence[PhoneHealth], room: int) -> list[RenderableType]:
    """Phones with the same state and note share a line: a rack without power is one line, not 46."""
    folded = _fold(each for each in health if each.noteworthy)
    folded.sort(key=lambda entry: _WORST_FIRST.index(entry[0]))
    if not folded:
        return []
    shown = folded if len(folded) <= room else folded[: room - 1]
    table = FitTable("", Column("", wrap=True), Column("", cut=True))
    for state, note, phones in shown:
        mark, style = _MARKS[state]
        table.add_row(Text(f"{mark} {state.value}", style), _phones(phones), note)
    left = len(folded) - len(shown)
    return [table, *([Text(f"  … and {left} more; full list: clusterctl status --json", "dim")] if left else [])]


def _fold(health: Iterable[PhoneHealth]) -> list[tuple[PhoneState, str, list[Phone]]]:
    groups: dict[tuple[PhoneState, str], list[Phone]] = {}
    for each in health:
        groups.setdefault((each.state, "; ".join(each.notes)), []).append(each.phone)
    return [(state, note, phones) for (state, note), phones in groups.items()]


def _phones(phones: Sequence[Phone]) -> str:
    if len(phones) == 1:
        return f"{phones[0].name} ({phones[0].where})"
    return f"{fold(phones)} ({len(phones)} phones)"


def render_phones(health: Sequence[PhoneHealth]) -> FitTable:
    table = FitTable("phone", "port", "state", *(column for column, _ in _READINGS))
    for each in health:
        mark, style = _MARKS[each.state]
        readings = [read(each.vitals) if each.vitals else "" for _, read in _READINGS]
        table.add_row(each.phone.name, each.phone.where, Text(f"{mark} {each.state.value}", style), *readings)
    return table


def _figure(value: float | None, unit: str) -> str:
    return "?" if value is None else f"{value:.0f} {unit}"


def _battery(vitals: Vitals) -> str:
    battery = vitals.battery
    if battery is None or battery.percent is None:
        return "?"
    sign = {"CHARGING": "+", "DISCHARGING": "-"}.get(battery.status or "", " ")
    return f"{battery.percent}%{sign}"


def _clock_percent(vitals: Vitals) -> float | None:
    if not vitals.frequency_mhz or not vitals.frequency_max_mhz:
        return None
    return 100 * vitals.frequency_mhz / vitals.frequency_max_mhz


def _clock(vitals: Vitals) -> str:
    return f"{vitals.frequency_mhz or '?'}/{vitals.frequency_max_mhz or '?'}"


def _gigabytes(megabytes: int | None) -> str:
    return "?" if megabytes is None else f"{megabytes / 1024:.1f} GB"


def _run(vitals: Vitals) -> str:
    """The end of the id is enough: the full id is printed above the table."""
    if vitals.run is None or vitals.run.state not in ACTIVE_RUN:
        return ""
    step = "" if vitals.run.step is None else f" @ {vitals.run.step}"
    return "-".join(vitals.run.id.split("-")[-2:]) + step


_READINGS: tuple[tuple[Column, Callable[[Vitals], str]], ...] = (
    (Column("temp", right=True), lambda vitals: _figure(vitals.temperature_c, "°C")),
    (Column("battery", right=True, priority=1), _battery),
    (Column("MHz", right=True, priority=5), _clock),
    (Column("memory free", right=True, priority=3), lambda vitals: _gigabytes(vitals.memory_free_mb)),
    (Column("disk free", right=True, priority=4), lambda vitals: _gigabytes(vitals.disk_free_mb)),
    (Column("agent", priority=2), lambda vitals: vitals.agent_version or vitals.agent_release or "none"),
    (Column("run"), _run),
)


def print_status(console: Console, cluster: str, health: Sequence[PhoneHealth]) -> None:
    console = for_tables(console)
    console.print(render_status(cluster, health, console.size))
    if bare := [each.phone for each in health if each.needs_provision]:
        next_step(f"clusterctl provision --limit {fold(bare)}")
    elif any(each.state in {PhoneState.OFF, PhoneState.FAILED, PhoneState.UNFIT} for each in health):
        next_step("clusterctl doctor")


def watch_status(console: Console, cluster: str, ask: Callable[[], Sequence[PhoneHealth]]) -> None:
    """Redraws until Ctrl-C. Connections stay open, so a round costs one command per phone."""
    start = Text(f"querying the phones of {cluster} …", "dim")
    with suppress(KeyboardInterrupt), Live(start, console=console, screen=console.is_terminal) as live:
        while True:
            picture = render_status(cluster, ask(), console.size)
            live.update(Group(picture, Text(f"\n{time.strftime('%H:%M:%S')}  Ctrl-C to quit", "dim")), refresh=True)
            time.sleep(_WATCH_EVERY_S)
