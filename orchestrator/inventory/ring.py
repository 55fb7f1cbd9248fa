"""The order of the phones is the order of the ring, and the ring's order decides what the uplinks carry.

Ranks take the hostfile's lines in turn, and rank r sends to rank r + 1. In ring order (`Cluster.phones`) every uplink
carries one flow a direction; interleaved, almost every hop crosses one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.inventory.model import Cluster, Phone


def hostfile(phones: Iterable[Phone]) -> str:
    """Open MPI's hostfile, phones in the order given. Addresses only: phones have no name service."""
    return "".join(f"{phone.address} slots=1\n" for phone in phones)


def interleaved(phones: Iterable[Phone]) -> tuple[Phone, ...]:
    """The order to avoid: one phone of each switch in turn. It shows what ring order is worth."""
    by_switch: dict[str, list[Phone]] = {}
    for phone in phones:
        by_switch.setdefault(phone.switch, []).append(phone)
    turns = zip_longest(*by_switch.values())
    return tuple(phone for turn in turns for phone in turn if phone is not None)


def crossings(cluster: Cluster, ring: Sequence[Phone]) -> Counter[tuple[str, str]]:
    """How many hops of the ring each uplink carries, by direction: (from switch, to switch)."""
    counted: Counter[tuple[str, str]] = Counter()
    if len(ring) > 1:
        for sender, receiver in zip(ring, [*ring[1:], ring[0]], strict=True):
            counted.update(cables(cluster, sender.switch, receiver.switch))
    return counted


def cables(cluster: Cluster, start: str, end: str) -> list[tuple[str, str]]:
    """The uplinks on the way between two switches, each as (from, to): up until the ways meet, then down."""
    up, down = _way_to_root(cluster, start), _way_to_root(cluster, end)
    while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
        up.pop()
        down.pop()
    path = [*up, *reversed(down[:-1])]
    return list(pairwise(path))


def _way_to_root(cluster: Cluster, name: str) -> list[str]:
    way = [name]
    while uplink := cluster.switch(way[-1]).uplink:
        way.append(uplink.to)
    return way
