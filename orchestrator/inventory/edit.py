"""Record the identity of a phone (serial number, MAC address, host key) in a hand-written inventory.

Only the entry of the phone changes; comments, order and quoting of the rest stay as they are. A port range in braces on
one line is expanded into several lines, because 46 host keys on one line would be unreadable:

    - {ports: 1-46, name: "p1-{port:02}", …}        - ports: 1-46
                                                      name: "p1-{port:02}"
                                                      serials:
                                                        7: R58M123ABCD

The new text is loaded and compared before it replaces the file: it must describe the old cluster plus this change.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator.errors import ClusterctlError, InventoryError
from orchestrator.inventory.document import NULLS
from orchestrator.inventory.grammar import LARGEST_SWITCH, parse_ports
from orchestrator.inventory.load import load, load_text
from orchestrator.inventory.model import Cluster, Phone
from phone_agent.contract.files import atomic_write

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ITEM_START = re.compile(r" *- +")
_ITEM_REST = re.compile(r"[ \t]*(#[^\r\n]*)?")
_INDENT = 2

Node: TypeAlias = Any  # PyYAML's nodes have no types


@dataclass(frozen=True)
class PhoneIdentity:
    """Fields that are None are unknown and stay as they are in the inventory."""

    serial: str | None = None
    mac: str | None = None
    host_key: str | None = None

    @property
    def known(self) -> dict[str, str]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}


def record_identity(path: Path, phone: Phone, identity: PhoneIdentity) -> bool:
    """Whether the file changed. Raises ClusterctlError, and leaves the file alone, if it cannot be edited."""
    target = path.resolve()
    with _locked(target):
        before = load(path)
        desired = _with(before, phone, identity)
        if desired == before:
            return False
        text = target.read_bytes().decode("utf-8")
        try:
            _replace(path, with_identity(text, phone, identity), desired)
        except (_NotEditableError, InventoryError, OSError) as error:
            lines = "; ".join(f"{key}: {_scalar(value)}" for key, value in identity.known.items())
            raise ClusterctlError(
                f"{path}: cannot record the identity of {phone.name}: {error}",
                remedy=f"add to the inventory entry for {phone.where}: {lines}",
            ) from error
    return True


def with_identity(text: str, phone: Phone, identity: PhoneIdentity) -> str:
    for key, value in identity.known.items():
        text = _with_value(text, phone, key, value)
    return text


class _NotEditableError(Exception):
    pass


def _with(cluster: Cluster, phone: Phone, identity: PhoneIdentity) -> Cluster:
    def changed(one: Phone) -> Phone:
        if one.where != phone.where:
            return one
        return replace(
            one,
            serial=identity.serial or one.serial,
            mac=identity.mac or one.mac,
            host_key=identity.host_key or one.host_key,
        )

    switches = tuple(replace(switch, phones=tuple(map(changed, switch.phones))) for switch in cluster.switches)
    return replace(cluster, switches=switches)


def _replace(path: Path, text: str, desired: Cluster) -> None:
    """Relative paths in the inventory are relative to `path`, which may be a link to the file in another directory."""
    if load_text(text, path) != desired:
        raise _NotEditableError("its YAML layout is not supported")
    target = path.resolve()
    with atomic_write(target) as file:
        os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
        file.write(text.encode("utf-8"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the directory: the file itself is replaced."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _with_value(text: str, phone: Phone, key: str, value: str) -> str:
    entry = _entry(text, phone)
    keys = _keys(entry)
    if "port" in keys:
        return _put(text, entry, key, _scalar(value))
    if (many := keys.get(key + "s")) is not None:
        return _put(text, many, str(phone.port), _scalar(value), by_number=True)
    if (opened := _opened(text, entry)) is not None:
        text, entry = opened, _entry(opened, phone)
    return _put_mapping(text, entry, key + "s", f"{phone.port}: {_scalar(value)}")


def _entry(text: str, phone: Phone) -> Node:
    import yaml

    root = yaml.compose(text.removeprefix("\ufeff"), Loader=yaml.SafeLoader)
    switch = _keys(_keys(root)["switches"])[phone.switch]
    return next(entry for entry in _keys(switch)["phones"].value if phone.port in _ports(entry))


def _keys(mapping: Node) -> dict[str, Node]:
    return {key.value: value for key, value in mapping.value}


def _ports(entry: Node) -> tuple[int, ...]:
    keys = _keys(entry)
    return parse_ports((keys.get("port") or keys["ports"]).value, LARGEST_SWITCH)


def _put(text: str, mapping: Node, key: str, value: str, *, by_number: bool = False) -> str:
    """Set `key: value` in a mapping: replace the old value, or insert it at the end or in numeric order."""
    pairs = mapping.value
    if not isinstance(pairs, list):
        raise _NotEditableError(f"line {mapping.start_mark.line + 1} is not a mapping")
    if key in _keys(mapping):
        old = _keys(mapping)[key]
        return _spliced(text, old.start_mark.index, old.end_mark.index, value)
    before = [pair for pair in pairs if not by_number or int(pair[0].value) < int(key)]
    if mapping.flow_style:
        return _put_in_braces(text, mapping, before, f"{key}: {value}")
    return _put_line(text, mapping, before, [f"{key}: {value}"])


def _put_mapping(text: str, entry: Node, key: str, pair: str) -> str:
    if entry.flow_style:
        return _put_in_braces(text, entry, entry.value, f"{key}: {{{pair}}}")
    return _put_line(text, entry, entry.value, [f"{key}:", " " * _INDENT + pair])


def _put_in_braces(text: str, mapping: Node, before: list[Any], pair: str) -> str:
    if before:
        at = _end(before[-1][1])
        return _spliced(text, at, at, f", {pair}")
    at = mapping.start_mark.index + 1
    return _spliced(text, at, at, f"{pair}, " if mapping.value else pair)


def _put_line(text: str, mapping: Node, before: list[Any], lines: list[str]) -> str:
    first = mapping.value[0][0].start_mark
    newline = "\r\n" if "\r\n" in text else "\n"
    block = "".join(f"{' ' * first.column}{line}{newline}" for line in lines)
    if not before:
        at = first.index - first.column
        return _spliced(text, at, at, block)
    plain = text.removeprefix("\ufeff")
    end = plain.find("\n", _end(before[-1][1]))
    if end < 0:
        return f"{text}{newline}{block}"
    return _spliced(text, end + 1, end + 1, block)


def _opened(text: str, entry: Node) -> str | None:
    """Expand an entry in braces into one line per key; None if it is not in braces on its own line."""
    plain = text.removeprefix("\ufeff")
    start, end = entry.start_mark, entry.end_mark
    head = plain[start.index - start.column : start.index]
    rest = _ITEM_REST.match(plain, end.index)
    alone = rest is not None and plain[rest.end() : rest.end() + 1] in {"", "\n", "\r"}
    scalars = all(isinstance(value.value, str) for _, value in entry.value)
    if not (entry.flow_style and start.line == end.line and _ITEM_START.fullmatch(head) and alone and scalars):
        return None
    pairs = [plain[key.start_mark.index : value.end_mark.index] for key, value in entry.value]
    newline = "\r\n" if "\r\n" in text else "\n"
    tail = rest[0] if rest else ""
    lines = [pairs[0] + tail, *(" " * start.column + pair for pair in pairs[1:])]
    return _spliced(text, start.index, end.index + len(tail), newline.join(lines))


def _end(node: Node) -> int:
    """Where a value ends; PyYAML ends block collections at the start of the next token."""
    if isinstance(node.value, str) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _spliced(text: str, start: int, end: int, new: str) -> str:
    shift = len(text) - len(text.removeprefix("\ufeff"))
    return text[: start + shift] + new + text[end + shift :]


def _scalar(value: str) -> str:
    return value if _PLAIN.fullmatch(value) and value not in NULLS else json.dumps(value)
