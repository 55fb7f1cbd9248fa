"""How the kept memory begins: of which attempt and step what is live is, and of which its copy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

LIVE, COPY = range(2)
MARKS = 2
SIZE = 4096  # what is kept begins at a page of its own
NOTHING = -1
_NUMBER = struct.Struct("q")  # written by one store: whoever is killed over it leaves the old one or the new one


class Mark(NamedTuple):
    """Ordered: what a later attempt committed replaces all that earlier ones did, whatever its step."""

    attempt: int
    step: int


def read(memory: Any) -> list[Mark | None]:
    """Of LIVE and of COPY. None: it is of no step, or somebody was killed while it became of one."""
    marks = [Mark(*(_NUMBER.unpack_from(memory, place)[0] for place in _places(which))) for which in range(MARKS)]
    return [mark if mark.step > 0 else None for mark in marks]


def write(memory: Any, which: int, mark: Mark | None) -> None:
    """A mark without a step is none: so the step is taken away first, and put there last."""
    attempt, step = _places(which)
    _NUMBER.pack_into(memory, step, NOTHING)
    if mark is not None:
        _NUMBER.pack_into(memory, attempt, mark.attempt)
        _NUMBER.pack_into(memory, step, mark.step)


def restamp(memory: Any, which: int, attempt: int) -> None:
    """The same step, now another attempt's; it is marked all the while."""
    _NUMBER.pack_into(memory, _places(which)[0], attempt)


def held(marks: Sequence[Mark | None]) -> list[Mark]:
    return sorted({mark for mark in marks if mark is not None})


def _places(which: int) -> tuple[int, int]:
    """Of the attempt, and of the step."""
    start = which * 2 * _NUMBER.size
    return start, start + _NUMBER.size
