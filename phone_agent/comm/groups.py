"""Which ranks sum among themselves first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def divided(switches: Sequence[str], most: int = 0) -> list[str]:
    """Each rank's group, by each rank's switch: neighbours on one switch, as even as it goes and no more than `most` of
    them; 0: all of a switch."""
    members = Counter(switches)
    seen: Counter[str] = Counter()
    found = []
    for switch in switches:
        groups = -(-members[switch] // most) if most else 1
        found.append(f"{switch}/{seen[switch] * groups // members[switch]}")
        seen[switch] += 1
    return found
