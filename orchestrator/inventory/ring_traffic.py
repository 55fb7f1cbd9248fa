"""Ring order: the order of phones in the hostfile decides how much traffic each uplink carries.

Ranks follow the lines of the hostfile, and rank r sends to rank r + 1. In ring order (`Cluster.phones`) every uplink
carries one flow per direction; interleaved, almost every hop crosses an uplink.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, zip_longest

from orchestrator.inventory.grammar import bits_per_second
from orchestrator.inventory.model import Cluster, Phone, Uplink


def hostfile(phones: Iterable[Phone]) -> str:
    """An Open MPI hostfile with the phones in the given order. Addresses only: phones have no DNS."""
    return "".join(f"{phone.address} slots=1\n" for phone in phones)


def interleaved(phones: Iterable[Phone]) -> tuple[Phone, ...]:
    """The worst order, one phone from each switch in turn: the baseline that shows the value of ring order."""
    by_switch: dict[str, list[Phone]] = {}
    for phone in phones:
        by_switch.setdefault(phone.switch, []).append(phone)
    turns = zip_longest(*by_switch.values())
    return tuple(phone for turn in turns for phone in turn if phone is not None)


def uplink_path(cluster: Cluster, start: str, end: str) -> list[tuple[str, str]]:
    """The uplinks between two switches as (from, to) pairs: up to the common ancestor, then down."""
    up, down = _path_to_root(cluster, start), _path_to_root(cluster, end)
    while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
        up.pop()
        down.pop()
    path = [*up, *reversed(down[:-1])]
    return list(pairwise(path))


def slow_uplinks(cluster: Cluster) -> list[tuple[str, Uplink]]:
    """Uplinks slower than a single phone, with the switch they start from."""
    phone = bits_per_second(cluster.rate)
    uplinks = [(switch.name, switch.uplink) for switch in cluster.switches if switch.uplink]
    return [(name, uplink) for name, uplink in uplinks if bits_per_second(uplink.rate) < phone]


def _path_to_root(cluster: Cluster, name: str) -> list[str]:
    path = [name]
    while uplink := cluster.switch(path[-1]).uplink:
        path.append(uplink.to)
    return path
