"""Pinned host keys, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from orchestrator.fleet.host_keys import HostKeys
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import one_line
from orchestrator.view.console import next_step, note, out, print_json


def print_pins(phones: Sequence[Phone], hosts: HostKeys, *, json: bool) -> None:
    if json:
        print_json([_as_json(phone, hosts) for phone in phones])
        return
    table = Table("phone", "port", "address", "host key", box=None, pad_edge=False, header_style="dim")
    for phone in phones:
        table.add_row(phone.name, phone.where, str(phone.address), _shown(phone, hosts))
    out.print(table)
    if strangers := [phone for phone in phones if hosts.pinned(phone) is None]:
        next_step(f"clusterctl provision --limit {fold(strangers)}", "to meet the others")


def print_forgotten(phones: Sequence[Phone], *, json: bool) -> None:
    if json:
        print_json([phone.name for phone in phones])
    elif phones:
        note(f"forgot the host keys of {fold(phones)}")
        next_step(f"clusterctl provision --limit {fold(phones)}")
    else:
        note("nothing was pinned for them")


def tell_listed(phones: Sequence[Phone]) -> None:
    """Of these only a person can take the key back."""
    if phones:
        note(f"the inventory itself lists host keys of {fold(phones)}: those count until they are removed there")


def print_key(public: str, *, json: bool) -> None:
    if json:
        print_json({"public_key": public})
    else:
        out.print(public, soft_wrap=True, markup=False)


def _as_json(phone: Phone, hosts: HostKeys) -> dict[str, object]:
    key = hosts.pinned(phone)
    return {
        "phone": phone.name,
        "port": phone.where,
        "address": str(phone.address),
        "type": key and key.kind,
        "fingerprint": key and key.fingerprint,
        "same_as": list(hosts.duplicates(phone)),
    }


def _shown(phone: Phone, hosts: HostKeys) -> Text:
    key = hosts.pinned(phone)
    if key is None:
        return Text("not met yet", "dim")
    if duplicates := hosts.duplicates(phone):
        return Text(one_line(f"{key.fingerprint} also of {', '.join(duplicates)}"), "red")
    return Text(key.fingerprint)
