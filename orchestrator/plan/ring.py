"""The order of the phones is the order of the ring, and the ring's order decides what the uplinks carry.

Ranks take the hostfile's lines in turn, and rank r sends to rank r + 1. In ring order (`Cluster.phones`) every uplink
carries one flow a direction; interleaved, almost every hop crosses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.inventory.model import Phone


def hostfile(phones: Iterable[Phone]) -> str:
    """Open MPI's hostfile, phones in the order given. Addresses only: phones have no name service."""
    return "".join(f"{phone.address} slots=1\n" for phone in phones)


def interleaved(phones: Iterable[Phone]) -> tuple[Phone, ...]:
    """The order to avoid: one phone of each switch in turn. It shows what ring order is worth."""
    by_switch: dict[str, list[Phone]] = {}
    for phone in phones:
        by_switch.setdefault(phone.switch, []).append(phone)
    rounds = zip_longest(*by_switch.values())
    return tuple(phone for turn in rounds for phone in turn if phone is not None)


def hops(phones: Sequence[Phone]) -> list[tuple[Phone, Phone]]:
    """Sender and receiver of each hop of the ring; one phone sends to nobody."""
    if len(phones) < 2:
        return []
    return list(zip(phones, [*phones[1:], phones[0]], strict=True))
