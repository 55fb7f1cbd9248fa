"""The tree of switches: ring order, loops, and disconnected parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from orchestrator.inventory.grammar import bits_per_second

if TYPE_CHECKING:
    from orchestrator.inventory.model import Cluster, Switch, Uplink


def ring_order(switches: Iterable[Switch]) -> tuple[Switch, ...]:
    """Depth-first order from the first switch listed: a ring through the phones uses each uplink once per direction.

    Depth-first traversal visits the subtree below an uplink without interruption, so the ring enters it once and
    leaves it once.
    """
    by_name = {switch.name: switch for switch in switches}
    edges = _edges({name: switch.uplink.to for name, switch in by_name.items() if switch.uplink})
    order: dict[str, Switch] = {}
    for start in by_name:
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name in order or name not in by_name:
                continue
            order[name] = by_name[name]
            listed = [other for other in by_name if other in edges.get(name, ())]
            waiting.extend(reversed(listed))
    return tuple(order.values())


def slow_uplinks(cluster: Cluster) -> list[tuple[str, Uplink]]:
    """Uplinks slower than a single phone, with the switch they start from."""
    phone = bits_per_second(cluster.rate)
    uplinks = [(switch.name, switch.uplink) for switch in cluster.switches if switch.uplink]
    return [(name, uplink) for name, uplink in uplinks if bits_per_second(uplink.rate) < phone]


def find_loops(uplinks: Mapping[str, str]) -> list[list[str]]:
    """Cycles of uplinks, each reported once, starting at its first switch in `uplinks`."""
    found: list[list[str]] = []
    done: set[str] = set()
    for start in uplinks:
        path: list[str] = []
        at = start
        while at in uplinks and at not in done:
            done.add(at)
            path.append(at)
            at = uplinks[at]
        if at in path:
            found.append(path[path.index(at) :])
    return found


def find_islands(names: Iterable[str], uplinks: Mapping[str, str]) -> list[list[str]]:
    """Groups of switches that no cable connects; a valid cluster is one group."""
    edges = _edges(uplinks)
    groups: list[list[str]] = []
    seen: set[str] = set()
    for start in names:
        group = _reachable(start, edges) - seen
        seen |= group
        if group:
            groups.append([name for name in names if name in group])
    return groups


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting.extend(edges.get(name, ()))
    return reached


def _edges(uplinks: Mapping[str, str]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for one, other in uplinks.items():
        edges.setdefault(one, set()).add(other)
        edges.setdefault(other, set()).add(one)
    return edges
