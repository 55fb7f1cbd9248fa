"""Groups of a hierarchical allreduce. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def assign_groups(switches: Sequence[str], max_size: int = 0) -> list[str]:
    """The group of each rank, given the switch of each rank.

    A group is a run of neighbors on one switch. Groups are as even as possible, with at most `max_size` members; 0: one
    group per switch.
    """
    members = Counter(switches)
    seen: Counter[str] = Counter()
    groups = []
    for switch in switches:
        count = -(-members[switch] // max_size) if max_size else 1
        groups.append(f"{switch}/{seen[switch] * count // members[switch]}")
        seen[switch] += 1
    return groups
