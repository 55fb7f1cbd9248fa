"""Parse YAML into a tree of nodes that carry line numbers, and read mappings key by key.

Built from parser events instead of `yaml.safe_load` for three reasons: every error needs its line, duplicate keys must
be reported, and the schema decides the type of a value (a phone may be called `no`, and the MAC address
11:22:33:44:55:06 is not a base-60 number).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

from orchestrator.errors import InventoryError, Problem
from orchestrator.inventory.suggest import suggestion

LARGEST_FILE = 4 * 2**20
LARGEST_TREE = 200_000  # nodes, with aliases expanded: rejects alias bombs
DEEPEST_TREE = 16
NULLS = frozenset({"", "~", "null", "Null", "NULL"})

_BRACKETS = {"while parsing a flow mapping": "{…}", "while parsing a flow sequence": "[…]"}
_BARE_BRACE = re.compile(r"[^\s\"'\[{,]\{")

Report: TypeAlias = Callable[[int, str], None]  # called with the line and message of each problem


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: ClassVar = "a single value"
    line: int
    text: str | None  # None: nothing was written


@dataclass(frozen=True, slots=True)
class Sequence:
    kind: ClassVar = "a list"
    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    kind: ClassVar = "a mapping"
    line: int
    items: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)


Node: TypeAlias = Scalar | Sequence | Mapping
T = TypeVar("T")
N = TypeVar("N", Scalar, Sequence, Mapping)


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InventoryError(path, [Problem(0, f"cannot be read: {reason.lower()}")]) from error
    if len(data) > LARGEST_FILE:
        message = f"is larger than {LARGEST_FILE // 2**20} MiB: this is not an inventory"
        raise InventoryError(path, [Problem(0, message)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text: byte 0x{data[error.start]:02x} is invalid; save the file as UTF-8"
        raise InventoryError(path, [Problem(line, message)]) from error


def parse(text: str, report: Report) -> Node | None:
    """The root node, or None if the document is empty or cannot be parsed."""
    import yaml

    loader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        return _Builder(yaml.parse(text, Loader=loader), report).document()
    except _UnreadableError as stop:
        report(stop.line, stop.message)
    except yaml.YAMLError as error:
        report(*_explain(error, text))
    return None


class _UnreadableError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class _Builder:
    def __init__(self, events: Iterator[Any], report: Report) -> None:
        self._events = events
        self._report = report
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._size = 0

    def document(self) -> Node | None:
        next(self._events)  # stream start
        if type(next(self._events)).__name__ == "StreamEndEvent":
            return None
        root = self._node(next(self._events), 0)
        next(self._events)  # document end
        after = next(self._events)
        if type(after).__name__ != "StreamEndEvent":
            raise _UnreadableError(_line(after), "a second YAML document starts here; an inventory is one document")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        if type(event).__name__ == "AliasEvent":
            return self._alias(event)
        self._grow(1, event)
        if depth > DEEPEST_TREE:
            raise _UnreadableError(_line(event), f"nested more than {DEEPEST_TREE} levels deep: not an inventory")
        if event.tag not in {None, "!"}:
            self._report(_line(event), f"the tag {event.tag} has no meaning in an inventory; remove it")
        before = self._size
        node = self._content(event, depth)
        if event.anchor:
            self._anchors[event.anchor] = (node, self._size - before + 1)
        return node

    def _content(self, event: Any, depth: int) -> Node:
        match type(event).__name__:
            case "MappingStartEvent":
                return self._mapping(event, depth)
            case "SequenceStartEvent":
                return Sequence(_line(event), [self._node(inner, depth + 1) for inner in self._until("SequenceEnd")])
            case _:
                empty = event.style in {None, ""} and event.value in NULLS
                return Scalar(_line(event), None if empty else event.value)

    def _mapping(self, event: Any, depth: int) -> Mapping:
        mapping = Mapping(_line(event))
        for inner in self._until("MappingEnd"):
            key = self._node(inner, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, Scalar) or key.text is None:
                self._report(_line(inner), "a key must be a single word")
            elif key.text in mapping.items:
                first = mapping.key_lines[key.text]
                self._report(_line(inner), f"'{key.text}' is given twice (first on line {first})")
            else:
                mapping.items[key.text] = value
                mapping.key_lines[key.text] = _line(inner)
        return mapping

    def _until(self, end: str) -> Iterator[Any]:
        while not type(event := next(self._events)).__name__.startswith(end):
            yield event

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise _UnreadableError(
                _line(event), f"'*{event.anchor}' refers to nothing above it; define '&{event.anchor}' first"
            )
        node, size = self._anchors[event.anchor]
        self._grow(size, event)
        return node

    def _grow(self, nodes: int, event: Any) -> None:
        self._size += nodes
        if self._size > LARGEST_TREE:
            raise _UnreadableError(
                _line(event), f"grows beyond {LARGEST_TREE} values with its aliases: not an inventory"
            )


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _explain(error: Any, text: str) -> tuple[int, str]:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # a character that YAML forbids; the error has only its position
        position = getattr(error, "position", 0)
        return text.count("\n", 0, position) + 1, "not YAML: control characters are not allowed in a text file"
    line = mark.line + 1
    written = text.split("\n")[mark.line] if mark.line < text.count("\n") + 1 else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return line, "not YAML: indent with spaces, not with tabs"
    if error.context in _BRACKETS:
        opened = f"the {_BRACKETS[error.context]} of line {error.context_mark.line + 1}"
        hint = "; a value with braces needs quotes" if _BARE_BRACE.search(written) else ""
        return line, f"not YAML: {opened} lacks a comma or its end before column {mark.column + 1}{hint}"
    return line, f"not YAML: {error.problem}{f' {error.context}' if error.context else ''}, at column {mark.column + 1}"


class Section:
    """A mapping read key by key. What is missing, unknown or of the wrong kind is reported, and reading goes on."""

    def __init__(self, node: Mapping, what: str, known: Ordered[str], report: Report, line: int | None = None) -> None:
        self.line = line or node.line
        self._items = node.items
        self._key_lines = node.key_lines
        self._what = what
        self.prefix = ""  # of messages about a value, where its key alone says too little
        self._report = report
        for key in node.items:
            if key not in known:
                hint = suggestion(key, known) or f"; allowed: {', '.join(known)}"
                report(node.key_lines[key], f"unknown key '{key}' in {what}{hint}")

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def line_of(self, key: str) -> int:
        return self._key_lines.get(key, self.line)

    def required(self, key: str, parse: Callable[[str], T]) -> T | None:
        self._require(key)
        return self.optional(key, parse)

    def optional(self, key: str, parse: Callable[[str], T]) -> T | None:
        """The parsed value; None when absent or wrong, the latter reported."""
        node = self._of_kind(key, Scalar)
        if node is None or node.text is None:
            return None
        try:
            return parse(node.text)
        except ValueError as error:
            self._report(node.line, f"{self.prefix}{key}: {error}")
            return None

    def mapping(self, key: str, *, required: bool = False) -> Mapping | None:
        if required:
            self._require(key)
        return self._of_kind(key, Mapping)

    def sequence(self, key: str) -> Sequence | None:
        return self._of_kind(key, Sequence)

    def section(self, key: str, known: Ordered[str], *, required: bool = False) -> Section | None:
        node = self.mapping(key, required=required)
        return Section(node, f"'{key}'", known, self._report, self.line_of(key)) if node else None

    def _require(self, key: str) -> None:
        if key not in self._items:
            self._report(self.line, f"{self._what} has no '{key}'")

    def _of_kind(self, key: str, kind: type[N]) -> N | None:
        """The node under `key` if it is of that kind; a node of another kind is reported."""
        node = self._items.get(key)
        if node is None:
            return None
        if isinstance(node, Scalar) and node.text is None:
            self._report(self.line_of(key), f"'{key}' of {self._what} has no value")
        elif isinstance(node, kind):
            return node
        else:
            self._report(self.line_of(key), f"'{key}' of {self._what} must be {kind.kind}, not {node.kind}")
        return None
