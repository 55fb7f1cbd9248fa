"""The `switches:` part of an inventory: each switch, its uplink, its place in the tree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.inventory import grammar, topology
from orchestrator.inventory.claims import Claims
from orchestrator.inventory.document import Mapping, Report
from orchestrator.inventory.load_phones import Common, PhoneReader
from orchestrator.inventory.model import Switch, Uplink
from orchestrator.inventory.section import Section
from orchestrator.inventory.suggest import listing, suggestion

SWITCH_KEYS = ("ports", "uplink", "phones")
UPLINK_KEYS = ("port", "to", "rate")


@dataclass(frozen=True)
class Frame:
    """A switch with its uplink, before its phones are read."""

    name: str
    line: int
    ports: int
    section: Section
    uplink: Uplink | None
    uplink_line: int


def read_switches(top: Section, common: Common, claims: Claims, report: Report) -> tuple[Switch, ...]:
    listed = top.mapping("switches", required=True)
    if listed is None:
        return ()
    frames = _frames(listed, common.rate, claims, report)
    _check_uplinks(frames, claims, report)
    phones = PhoneReader(common, claims, report)
    switches = tuple(
        Switch(frame.name, frame.ports, phones.read(frame.section, frame.name, frame.ports), frame.uplink)
        for frame in frames.values()
    )
    if not phones.any_entry and len(frames) == len(listed.items):
        report(top.line_of("switches"), "no switch has a phone; list some under 'phones'")
    return switches


def _frames(listed: Mapping, rate: str, claims: Claims, report: Report) -> dict[str, Frame]:
    frames = {}
    for name, node in listed.items.items():
        line = listed.key_lines[name]
        try:
            grammar.name(name)
        except ValueError as error:
            report(line, f"switch: {error}")
        claims.conflict("name", name, f"switch {name}", line)
        if isinstance(node, Mapping):
            frames[name] = _frame(name, line, Section(node, f"switch {name}", SWITCH_KEYS, report, line), rate)
        else:
            report(line, f"switch {name} must be a mapping with the keys {', '.join(SWITCH_KEYS)}")
    return frames


def _frame(name: str, line: int, section: Section, rate: str) -> Frame:
    ports = section.required("ports", grammar.port_count) or grammar.LARGEST_SWITCH
    return Frame(name, line, ports, section, _uplink(section, rate), section.line_of("uplink"))


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


def _check_uplinks(frames: dict[str, Frame], claims: Claims, report: Report) -> None:
    sound = True
    for frame in frames.values():
        if "uplink" not in frame.section:
            continue
        complaints = [] if frame.uplink is None else _uplink_complaints(frame, frame.uplink, frames, claims)
        for complaint in complaints:
            report(frame.uplink_line, f"uplink of {frame.name}: {complaint}")
        sound = sound and frame.uplink is not None and not complaints
    if sound:
        _check_tree(frames, report)


def _uplink_complaints(frame: Frame, uplink: Uplink, frames: dict[str, Frame], claims: Claims) -> list[str]:
    if uplink.to == frame.name:
        return ["it leads to the switch itself"]
    if uplink.to not in frames:
        hint = suggestion(uplink.to, list(frames)) or f"; there are {listing(list(frames))}"
        return [f"there is no switch '{uplink.to}'{hint}"]
    here = _claim_port(frame, uplink.port, f"the uplink to {uplink.to}", frame.uplink_line, claims)
    if uplink.to_port is None:
        return here
    owner = f"the uplink from {frame.name}"
    return here + _claim_port(frames[uplink.to], uplink.to_port, owner, frame.uplink_line, claims)


def _claim_port(frame: Frame, port: int, owner: str, line: int, claims: Claims) -> list[str]:
    if port > frame.ports:
        return [f"port {port} is beyond the last port of {frame.name}, {frame.ports}"]
    conflict = claims.conflict("port", f"{frame.name}:{port}", owner, line)
    return [conflict] if conflict else []


def _check_tree(frames: dict[str, Frame], report: Report) -> None:
    uplinks = {frame.name: frame.uplink.to for frame in frames.values() if frame.uplink}
    circles = topology.loops(uplinks)
    for circle in circles:
        path = " -> ".join([*circle, circle[0]])
        message = f"uplinks run in a circle: {path}; leave one out (a cable is written at one of its ends only)"
        report(frames[circle[0]].uplink_line, message)
    mainland, *others = topology.islands(list(frames), uplinks) or [[]]
    for island in others if not circles else ():
        names = ", ".join(island)
        message = f"no uplink connects {names} with {mainland[0]}; phones there could not reach the others"
        report(frames[island[0]].line, message)
