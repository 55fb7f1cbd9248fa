"""Debian version comparison (deb-version(7)), as dpkg and apt do it."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Final

_Run = tuple[tuple[int, ...], int]
_RUNS: Final = re.compile(r"([^0-9]*)([0-9]*)")
_END: Final[_Run] = ((0,), 0)


@total_ordering
class Version:
    def __init__(self, text: str) -> None:
        self.text = text
        epoch, _, rest = text.rpartition(":")
        upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
        self._key = (int(epoch) if epoch.isdigit() else 0, _key(upstream), _key(revision))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Version({self.text!r})"

    def satisfies(self, operator: str, wanted: str) -> bool:
        other = Version(wanted)
        match operator:
            case "<<":
                return self < other
            case "<=" | "<":
                return self <= other
            case "=":
                return self == other
            case ">=" | ">":
                return self >= other
            case ">>":
                return self > other
        raise ValueError(f"not a version relation: {operator!r}")


def _key(part: str) -> tuple[_Run, ...]:
    """A sort key: alternating runs of non-digits and digits.

    The 0 after each run and the empty runs at the end sort '~' before the end of the string, and all else after it.
    """
    runs = [((*map(_weight, other), 0), int(digits or 0)) for other, digits in _RUNS.findall(part)]
    while runs and runs[-1] == _END:
        runs.pop()
    return (*runs, _END, _END)


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
