"""Check that the switches form a tree: loops and disconnected parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


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
    edges = neighbors(uplinks)
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


def neighbors(uplinks: Mapping[str, str]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for one, other in uplinks.items():
        edges.setdefault(one, set()).add(other)
        edges.setdefault(other, set()).add(one)
    return edges
