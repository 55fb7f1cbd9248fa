"""Pinned host keys: a table, or JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from orchestrator.fleet.host_keys import HostKeys
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import one_line
from orchestrator.view.console import next_step, note, out, print_json
from orchestrator.view.table import Column, FitTable, print_table


def print_pinned_keys(phones: Sequence[Phone], hosts: HostKeys, *, json: bool) -> None:
    if json:
        print_json([_as_json(phone, hosts) for phone in phones])
        return
    print_table(out, render_pinned_keys(phones, hosts))
    if unpinned := [phone for phone in phones if hosts.pinned(phone) is None]:
        next_step(f"clusterctl provision --limit {fold(unpinned)}", "pin the missing keys")


def render_pinned_keys(phones: Sequence[Phone], hosts: HostKeys) -> FitTable:
    table = FitTable("phone", Column("port", priority=1), Column("address", priority=2), Column("host key", wrap=True))
    for phone in phones:
        table.add_row(phone.name, phone.where, str(phone.address), _key(phone, hosts))
    return table


def print_forgotten(phones: Sequence[Phone], *, json: bool) -> None:
    if json:
        print_json([phone.name for phone in phones])
    elif phones:
        note(f"removed the pinned host keys of {fold(phones)}")
        next_step(f"clusterctl provision --limit {fold(phones)}", "pin their new keys")
    else:
        note("no host key was pinned for these phones")


def print_keys_in_inventory(phones: Sequence[Phone]) -> None:
    """Keys written in the inventory can only be removed by editing it."""
    if phones:
        note(f"the inventory lists host keys of {fold(phones)}; they stay valid until you remove them there")


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


def _key(phone: Phone, hosts: HostKeys) -> Text:
    key = hosts.pinned(phone)
    if key is None:
        return Text("not pinned yet", "dim")
    if duplicates := hosts.duplicates(phone):
        return Text(one_line(f"{key.fingerprint} (same as {', '.join(duplicates)})"), "red")
    return Text(key.fingerprint)
