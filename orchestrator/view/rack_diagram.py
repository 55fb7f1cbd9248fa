"""A drawing of the rack: each switch with its ports in two rows, the uplinks, and the ring through them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from orchestrator.inventory.model import Cluster, Phone, Switch
from orchestrator.inventory.ring_traffic import uplink_path
from orchestrator.text import count_of

GUTTER = 2
FRAME = 3
GROUP = 6  # port columns per block, as on a real switch
WIDEST = 4  # blocks side by side: 48 ports
PHONE, UPLINK, EMPTY, LEFT_OUT = "black on green", "black on yellow", "dim", "dim green"
RING, CABLE = "bold blue", "yellow"


@dataclass(frozen=True)
class Glyphs:
    uplink: str
    empty: str
    left_out: str
    cable: str
    down: str
    up: str
    ring_top: str
    ring_side: str
    ring_foot: str
    to: str


UNICODE = Glyphs("⇅", "·", "░░", "━", "▼", "▲", "╭▶", "│ ", "╰─", "…")
ASCII = Glyphs("^", ".", "--", "=", "v", "^", "+>", "| ", "+-", "..")


def as_json(cluster: Cluster, chosen: Collection[Phone]) -> dict[str, Any]:
    return {
        "cluster": cluster.name,
        "inventory": str(cluster.source),
        "network": {
            "subnet": str(cluster.subnet),
            "host": None if cluster.host is None else str(cluster.host),
            "interface": cluster.interface,
            "rate": cluster.rate,
        },
        "switches": [_switch_json(switch, chosen) for switch in cluster.switches_in_ring_order],
        "ring": [phone.name for phone in cluster if phone in chosen],
    }


def _switch_json(switch: Switch, chosen: Collection[Phone]) -> dict[str, Any]:
    uplink = switch.uplink
    return {
        "name": switch.name,
        "ports": switch.ports,
        "uplink": uplink and {"port": uplink.port, "to": uplink.to, "to_port": uplink.to_port, "rate": uplink.rate},
        "phones": [_phone_json(phone) for phone in switch.phones if phone in chosen],
    }


def _phone_json(phone: Phone) -> dict[str, Any]:
    return {
        "name": phone.name,
        "port": phone.port,
        "address": str(phone.address),
        "ssh_port": phone.ssh_port,
        "mac": phone.mac,
        "serial": phone.serial,
    }


@dataclass(frozen=True)
class Racks:
    """Draws itself as wide as the console allows; in ASCII if the console has no Unicode."""

    cluster: Cluster
    chosen: Collection[Phone]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs = ASCII if options.ascii_only else UNICODE
        switches = self.cluster.switches_in_ring_order
        yield self._heading()
        for before, switch in zip((None, *switches), switches, strict=False):
            if before:
                yield from self._cables(before, switch, f"{glyphs.ring_side} {glyphs.down} ", glyphs)
            rows = list(self._rows(switch, options.max_width - GUTTER - FRAME, glyphs))
            yield _beside_ring(rows, self._title(switch, glyphs), glyphs, first=before is None)
        *back, last = self._cables(switches[-1], switches[0], f"{glyphs.ring_side} {glyphs.up} ", glyphs)
        yield from (*back, Text(glyphs.ring_foot, RING) + last[len(glyphs.ring_foot) :])
        yield self._legend(glyphs)

    def _heading(self) -> Text:
        cluster = self.cluster
        host = f", host {cluster.host}" if cluster.host else ""
        return Text.assemble(
            (cluster.name, "bold"),
            f"  {count_of(len(cluster), 'phone')} on {count_of(cluster.switches, 'switch')}",
            (f"  {cluster.subnet} on {cluster.interface}, {cluster.rate} per phone{host}", "dim"),
        )

    def _title(self, switch: Switch, glyphs: Glyphs) -> Text:
        if not switch.phones:
            return Text.assemble((switch.name, "bold"), "  no phones")
        chosen = sum(phone in self.chosen for phone in switch.phones)
        count = f"{chosen} of {len(switch.phones)}" if chosen < len(switch.phones) else str(chosen)
        return Text.assemble(
            (switch.name, "bold"),
            f"  {count} phone{'s' * (len(switch.phones) > 1)}",
            (f"  {_span([phone.name for phone in switch.phones], glyphs)}", "dim"),
            (f"  {_span([str(phone.address) for phone in switch.phones], glyphs)}", "dim"),
        )

    def _rows(self, switch: Switch, width: int, glyphs: Glyphs) -> Iterator[Text]:
        """Odd ports above, even ports below, as on a real switch; more rows if it is wider than the screen."""
        cells = self._cells(switch, glyphs)
        block = GROUP * cells[1].cell_len + 1
        columns = GROUP * max(1, min(WIDEST, (width + 1) // block))
        for start in range(1, switch.ports + 1, 2 * columns):
            for row in (start, start + 1):
                ports = range(row, min(start + 2 * columns, switch.ports + 1), 2)
                groups = [ports[at : at + GROUP] for at in range(0, len(ports), GROUP)]
                yield Text(" ").join(Text().join(cells[port] for port in group) for group in groups)

    def _cells(self, switch: Switch, glyphs: Glyphs) -> dict[int, Text]:
        cell = partial(_cell, digits=len(str(switch.ports)))
        cells = {port: cell(glyphs.empty, EMPTY) for port in range(1, switch.ports + 1)}
        for phone in switch.phones:
            taken = phone in self.chosen
            cells[phone.port] = cell(str(phone.port) if taken else glyphs.left_out, PHONE if taken else LEFT_OUT)
        for other in self.cluster.switches:
            if other.uplink and other.name == switch.name:
                cells[other.uplink.port] = cell(glyphs.uplink, UPLINK)
            elif other.uplink and other.uplink.to == switch.name and other.uplink.to_port:
                cells[other.uplink.to_port] = cell(glyphs.uplink, UPLINK)
        return cells

    def _cables(self, start: Switch, end: Switch, ring: str, glyphs: Glyphs) -> list[Text]:
        """The cables from one switch to the next on the ring, one per line."""
        hops = uplink_path(self.cluster, start.name, end.name)
        drawn = [self._cable(one, other, glyphs) for one, other in hops] or [Text("within the switch")]
        return [Text.assemble((ring, RING), cable) for cable in drawn]

    def _cable(self, one: str, other: str, glyphs: Glyphs) -> Text:
        """The inventory lists a cable at one of its ends; it can be drawn from either."""
        written = self.cluster.switch(one).uplink
        if written and written.to == other:
            return _drawn(written.rate, (one, written.port), (other, written.to_port), glyphs)
        written = self.cluster.switch(other).uplink
        assert written  # noqa: S101  `uplink_path` leads along uplinks only
        return _drawn(written.rate, (one, written.to_port), (other, written.port), glyphs)

    def _legend(self, glyphs: Glyphs) -> Text:
        legend = Text(" " * GUTTER + "  ").append(_cell("7", PHONE)).append(" phone   ")
        legend.append(_cell(glyphs.uplink, UPLINK)).append(" uplink   ")
        legend.append(_cell(glyphs.empty, EMPTY)).append(" empty   ")
        if len(self.chosen) < len(self.cluster):
            legend.append(_cell(glyphs.left_out, LEFT_OUT)).append(" not selected   ")
        return legend.append(f"{glyphs.ring_side.strip()} the ring", RING)


def _span(names: list[str], glyphs: Glyphs) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} {glyphs.to} {names[-1]}"


def _cell(content: str, style: str, digits: int = 2) -> Text:
    return Text.assemble((f"{content:>{max(2, digits)}}", style), " ")


def _drawn(rate: str, one: tuple[str, int | None], other: tuple[str, int | None], glyphs: Glyphs) -> Text:
    near, far = (name if port is None else f"{name}:{port}" for name, port in (one, other))
    return Text.assemble(near, (f" {glyphs.cable} {rate} {glyphs.cable} ", CABLE), far)


def _beside_ring(rows: list[Text], title: Text, glyphs: Glyphs, *, first: bool) -> Table:
    width = FRAME + max(*(row.cell_len for row in rows), title.cell_len + 3)
    face = Panel(
        Text("\n").join(rows), title=title, title_align="left", width=width, border_style="dim", padding=(0, 0, 0, 1)
    )
    top = ["", glyphs.ring_top] if first else [glyphs.ring_side] * 2
    beside = Table.grid()
    beside.add_row(Text("\n".join([*top, *[glyphs.ring_side] * len(rows)]), RING), face)
    return beside
