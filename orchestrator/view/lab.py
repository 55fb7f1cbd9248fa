"""How a lab is told to a person."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from orchestrator.lab.lifecycle import LabUp
from orchestrator.lab.shape import Arch
from orchestrator.lab.spec import Mode
from orchestrator.view.console import note, out, warn

_MEANING = {
    Mode.ROOT: "network namespaces, made by root",
    Mode.USER: "network namespaces in a user namespace",
    Mode.LOOPBACK: "plain processes on the loopback interface",
}
_LOST_ON_LOOPBACK = (
    "So the links have no speed limit (--rate and --uplink mean nothing), link= and disk= cannot be set, "
    "and phones see this computer's files, processes, temperatures and name."
)


def told(outcome: LabUp) -> None:
    note(("already up: " if outcome.was_up else "up: ") + f"{outcome.spec.shape} ({_MEANING[outcome.spec.mode]})")
    if outcome.spec.mode is Mode.LOOPBACK and not outcome.was_up:
        warn(f"no namespaces here: {'; '.join(outcome.objections)}. {_LOST_ON_LOOPBACK}")


def print_status(report: dict[str, Any]) -> None:
    kind = "phones" if report["arch"] is Arch.NATIVE else f"{report['arch']} phones"
    on = f"{sum(phone['up'] for phone in report['phones'])} of {len(report['phones'])} {kind} on"
    out.print(f"{on}, as {_MEANING[report['mode']]}; this computer is {report['host']}")
    if report["mode"] is not Mode.LOOPBACK:
        out.print(f"links {report['rate']}, uplinks {report['uplink']}, disks {report['disk']}")
    table = Table("phone", "port", "address", "user", "power", "sshd", box=None, pad_edge=False)
    for phone in report["phones"]:
        table.add_row(
            phone["name"],
            f"{phone['switch']}:{phone['port']}",
            phone["address"],
            phone["user"],
            "on" if phone["up"] else "[red]off[/]",
            "listens" if phone["sshd"] else "[red]down[/]",
        )
    out.print(table)
