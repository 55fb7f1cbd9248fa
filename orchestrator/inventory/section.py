"""Reading a mapping key by key: what is missing, unknown or of the wrong kind is reported, and reading goes on."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered
from typing import TypeVar

from orchestrator.inventory.document import Mapping, Report, Scalar, Sequence
from orchestrator.inventory.suggest import suggestion

T = TypeVar("T")
N = TypeVar("N", Scalar, Sequence, Mapping)


class Section:
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
