"""Select phones with `--limit`.

    selector = group {"," group}            union
    group    = item {"&" item}              intersection
    item     = ["!"] term                   complement
    term     = NAME | GLOB | SWITCH | SWITCH ":" PORTS | "@all" | "@failed"
    PORTS    = "1-8,12"                     a port list may itself contain commas

A group of a single "!" item is subtracted from the union of the others, in any order: `sw1,!p1-03` is sw1 without
p1-03, and `!sw2` alone is everything except sw2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from orchestrator.errors import UsageError
from orchestrator.inventory.grammar import PORTS, fold_ports, parse_ports
from orchestrator.inventory.model import Cluster, Phone, Switch
from orchestrator.inventory.suggest import listing, suggestion
from orchestrator.paths import ClusterState
from phone_agent.contract.files import write_json

_ITEM = re.compile(rf"\s*(?P<not>!?)\s*(?P<term>[^,&!:\s]+(?::\s*{PORTS.pattern})?)\s*(?P<end>[,&]|$)")
_GLOB = re.compile(r"[*?\[]")


def select(cluster: Cluster, limit: str | None, state: ClusterState) -> tuple[Phone, ...]:
    """The selected phones in ring order; all phones if there is no limit."""
    if limit is None:
        return cluster.phones
    names = _Selector(cluster, state).names(limit)
    if not names:
        raise UsageError(f"--limit '{limit}' selects no phone")
    return tuple(phone for phone in cluster if phone.name in names)


def fold(phones: Iterable[Phone]) -> str:
    """The shortest selector for exactly these phones: 'sw1:1-45,sw2:3'."""
    by_switch: dict[str, list[int]] = {}
    for phone in phones:
        by_switch.setdefault(phone.switch, []).append(phone.port)
    return ",".join(f"{switch}:{fold_ports(ports)}" for switch, ports in by_switch.items())


class _Selector:
    def __init__(self, cluster: Cluster, state: ClusterState) -> None:
        self._cluster = cluster
        self._state = state
        self._all = frozenset(phone.name for phone in cluster)

    def names(self, selector: str) -> frozenset[str]:
        chosen: list[frozenset[str]] = []
        removed: frozenset[str] = frozenset()
        for group in _groups(selector):
            (negated, term), *more = group
            if negated and not more:
                removed |= self._term(term, may_be_empty=True)
            else:
                chosen.append(frozenset.intersection(*(self._item(*item) for item in group)))
        return (frozenset().union(*chosen) if chosen else self._all) - removed

    def _item(self, negated: bool, term: str) -> frozenset[str]:  # noqa: FBT001  the grammar's own two parts
        names = self._term(term, may_be_empty=negated)
        return self._all - names if negated else names

    def _term(self, term: str, *, may_be_empty: bool) -> frozenset[str]:
        if term.startswith("@"):
            return self._keyword(term, may_be_empty=may_be_empty)
        name, colon, ports = term.partition(":")
        if colon:
            return self._on_ports(name, ports)
        if term in self._cluster:
            return frozenset({term})
        if _GLOB.search(term):
            return self._matching(term)
        return self._on_switch(term)

    def _keyword(self, term: str, *, may_be_empty: bool) -> frozenset[str]:
        if term == "@all":
            return self._all
        if term != "@failed":
            raise UsageError(f"--limit: unknown keyword '{term}'; use @all or @failed")
        names = self._all & read_failed(self._state)
        if not names and not may_be_empty:
            raise UsageError(
                "--limit @failed: no phone failed last time", remedy="leave --limit out, or name the phones"
            )
        return names

    def _on_ports(self, name: str, ports: str) -> frozenset[str]:
        switch = self._switch(name)
        try:
            numbers = parse_ports(ports, switch.ports)
        except ValueError as error:
            raise UsageError(f"--limit {name}:{ports}: {error}") from error
        found = frozenset(phone.name for phone in switch.phones if phone.port in numbers)
        if not found:
            raise UsageError(f"--limit {name}:{ports}: no phone there; {_phones_of(switch)}")
        return found

    def _on_switch(self, name: str) -> frozenset[str]:
        switch = self._switch(name)
        if not switch.phones:
            raise UsageError(f"--limit: {_phones_of(switch)}")
        return frozenset(phone.name for phone in switch.phones)

    def _switch(self, name: str) -> Switch:
        switches = {switch.name: switch for switch in self._cluster.switches}
        if name in switches:
            return switches[name]
        names = [*switches, *(phone.name for phone in self._cluster)]
        there_are = f"; there are {listing(list(switches))}, with phones such as {self._cluster.phones[0].name}"
        hint = suggestion(name, names) or there_are
        raise UsageError(f"--limit: no phone or switch is named '{name}'{hint}")

    def _matching(self, glob: str) -> frozenset[str]:
        names = {
            phone.name for phone in self._cluster if fnmatchcase(phone.name, glob) or fnmatchcase(phone.switch, glob)
        }
        if not names:
            raise UsageError(f"--limit: no phone or switch matches '{glob}'")
        return frozenset(names)


def _groups(selector: str) -> list[list[tuple[bool, str]]]:
    groups: list[list[tuple[bool, str]]] = [[]]
    at, end = 0, ","
    while end:
        match = _ITEM.match(selector, at)
        if match is None:
            raise _unreadable(selector, at)
        groups[-1].append((bool(match["not"]), match["term"]))
        at, end = match.end(), match["end"]
        if end == ",":
            groups.append([])
    return groups


def _unreadable(selector: str, at: int) -> UsageError:
    rest = selector[at:].strip()
    problem = (
        f"cannot read '{rest}'"
        if rest
        else "a phone or switch is missing"
        if selector.strip()
        else "the selection is empty"
    )
    return UsageError(
        f"--limit '{selector}': {problem}; write phones (p1-07, p1-*), switches (sw1), ports (sw1:1-8,12), @failed or "
        "@all, joined by ',' (or), '&' (and) and '!' (not)"
    )


def _phones_of(switch: Switch) -> str:
    if not switch.phones:
        return f"switch {switch.name} has no phones"
    return f"switch {switch.name} has phones on ports {fold_ports(phone.port for phone in switch.phones)}"


def remember_failed(state: ClusterState, phones: Iterable[Phone]) -> None:
    """Record which phones failed in the last command: those that `--limit @failed` selects."""
    state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(state.failed, [phone.name for phone in phones])


def read_failed(state: ClusterState) -> frozenset[str]:
    try:
        names = json.loads(state.failed.read_bytes())
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise _damaged(state) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _damaged(state)
    return frozenset(names)


def _damaged(state: ClusterState) -> UsageError:
    return UsageError(f"--limit @failed: {state.failed} cannot be read", remedy="name the phones, or use @all")
