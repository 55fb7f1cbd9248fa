"""The `switches:` part of an inventory: each switch, its uplink, and its position in the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.inventory import grammar
from orchestrator.inventory.document import Mapping, Report, Section
from orchestrator.inventory.load_phones import ClusterDefaults, PhoneReader, UniqueValues
from orchestrator.inventory.model import Switch, Uplink
from orchestrator.inventory.ring_order import neighbors
from orchestrator.inventory.suggest import listing, suggestion

SWITCH_KEYS = ("ports", "uplink", "phones")
UPLINK_KEYS = ("port", "to", "rate")


@dataclass(frozen=True)
class SwitchDraft:
    """A switch with its uplink, before its phones are read."""

    name: str
    line: int
    ports: int
    section: Section
    uplink: Uplink | None
    uplink_line: int


def read_switches(top: Section, defaults: ClusterDefaults, used: UniqueValues, report: Report) -> tuple[Switch, ...]:
    listed = top.mapping("switches", required=True)
    if listed is None:
        return ()
    drafts = _drafts(listed, defaults.rate, used, report)
    _check_uplinks(drafts, used, report)
    phones = PhoneReader(defaults, used, report)
    switches = tuple(
        Switch(draft.name, draft.ports, phones.read(draft.section, draft.name, draft.ports), draft.uplink)
        for draft in drafts.values()
    )
    if not phones.any_entry and len(drafts) == len(listed.items):
        report(top.line_of("switches"), "no switch has a phone; list some under 'phones'")
    return switches


def _drafts(listed: Mapping, rate: str, used: UniqueValues, report: Report) -> dict[str, SwitchDraft]:
    drafts = {}
    for name, node in listed.items.items():
        line = listed.key_lines[name]
        try:
            grammar.name(name)
        except ValueError as error:
            report(line, f"switch: {error}")
        used.conflict("name", name, f"switch {name}", line)
        if isinstance(node, Mapping):
            drafts[name] = _draft(name, line, Section(node, f"switch {name}", SWITCH_KEYS, report, line), rate)
        else:
            report(line, f"switch {name} must be a mapping with the keys {', '.join(SWITCH_KEYS)}")
    return drafts


def _draft(name: str, line: int, section: Section, rate: str) -> SwitchDraft:
    ports = section.required("ports", grammar.port_count) or grammar.LARGEST_SWITCH
    return SwitchDraft(name, line, ports, section, _uplink(section, rate), section.line_of("uplink"))


def _uplink(switch: Section, rate: str) -> Uplink | None:
    section = switch.section("uplink", UPLINK_KEYS)
    if section is None:
        return None
    port = section.required("port", grammar.port_number)
    to = section.required("to", _far_end)
    own_rate = section.optional("rate", grammar.rate) or rate
    if port is None or to is None:
        return None
    return Uplink(port, to[0], own_rate, to[1])


def _far_end(text: str) -> tuple[str, int | None]:
    """'sw2', or 'sw2:47' where the cable's other port is known."""
    match = re.fullmatch(r"([^:]+)(?::(.*))?", text)
    if match is None:
        raise ValueError(f"'{text}' is not a switch; write sw2, or sw2:47 to name the port as well")
    return match[1], None if match[2] is None else grammar.port_number(match[2])


def _check_uplinks(drafts: dict[str, SwitchDraft], used: UniqueValues, report: Report) -> None:
    sound = True
    for draft in drafts.values():
        if "uplink" not in draft.section:
            continue
        conflicts = [] if draft.uplink is None else _uplink_complaints(draft, draft.uplink, drafts, used)
        for complaint in conflicts:
            report(draft.uplink_line, f"uplink of {draft.name}: {complaint}")
        sound = sound and draft.uplink is not None and not conflicts
    if sound:
        _check_tree(drafts, report)


def _uplink_complaints(
    draft: SwitchDraft, uplink: Uplink, drafts: dict[str, SwitchDraft], used: UniqueValues
) -> list[str]:
    if uplink.to == draft.name:
        return ["connects the switch to itself"]
    if uplink.to not in drafts:
        hint = suggestion(uplink.to, list(drafts)) or f"; there are {listing(list(drafts))}"
        return [f"there is no switch '{uplink.to}'{hint}"]
    here = _claim_port(draft, uplink.port, f"the uplink to {uplink.to}", draft.uplink_line, used)
    if uplink.to_port is None:
        return here
    owner = f"the uplink from {draft.name}"
    return here + _claim_port(drafts[uplink.to], uplink.to_port, owner, draft.uplink_line, used)


def _claim_port(draft: SwitchDraft, port: int, owner: str, line: int, used: UniqueValues) -> list[str]:
    if port > draft.ports:
        return [f"port {port} is beyond the last port of {draft.name}, {draft.ports}"]
    conflict = used.conflict("port", f"{draft.name}:{port}", owner, line)
    return [conflict] if conflict else []


def _check_tree(drafts: dict[str, SwitchDraft], report: Report) -> None:
    uplinks = {draft.name: draft.uplink.to for draft in drafts.values() if draft.uplink}
    circles = find_loops(uplinks)
    for circle in circles:
        path = " -> ".join([*circle, circle[0]])
        message = f"uplinks form a loop: {path}; remove one (list each cable at one end only)"
        report(drafts[circle[0]].uplink_line, message)
    mainland, *others = find_islands(list(drafts), uplinks) or [[]]
    for island in others if not circles else ():
        names = ", ".join(island)
        message = f"no uplink connects {names} with {mainland[0]}; phones there could not reach the others"
        report(drafts[island[0]].line, message)


def find_loops(uplinks: dict[str, str]) -> list[list[str]]:
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


def find_islands(names: Iterable[str], uplinks: dict[str, str]) -> list[list[str]]:
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


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting.extend(edges.get(name, ()))
    return reached
