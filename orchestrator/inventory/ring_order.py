"""The order of the ring: which switch comes after which. Within a switch, phones follow port by port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def ring_order(names: Iterable[str], uplinks: Mapping[str, str]) -> tuple[str, ...]:
    """Switches depth first, from the first one listed: a ring through the phones uses each uplink once per direction.

    Depth-first traversal visits the subtree below an uplink without interruption, so the ring enters it once and
    leaves it once.
    """
    listed, edges = dict.fromkeys(names), neighbors(uplinks)
    order: dict[str, None] = {}
    for start in listed:
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name in order or name not in listed:
                continue
            order[name] = None
            waiting.extend(other for other in reversed(listed) if other in edges.get(name, ()))
    return tuple(order)


def neighbors(uplinks: Mapping[str, str]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for one, other in uplinks.items():
        edges.setdefault(one, set()).add(other)
        edges.setdefault(other, set()).add(one)
    return edges
