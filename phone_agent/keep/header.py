"""How the kept memory begins: for each of its two copies, of which attempt and step it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

SLOTS = 2
SIZE = 4096  # the copies begin at a page of their own
NOTHING = -1
_MARK = struct.Struct("<qq")


class Mark(NamedTuple):
    """Ordered: what a later attempt committed replaces all that earlier ones did, whatever its step."""

    attempt: int
    step: int


def read(memory: Any) -> list[Mark | None]:
    """By slot. None: nothing was committed there, or somebody was killed while doing so."""
    marks = [Mark(*_MARK.unpack_from(memory, slot * _MARK.size)) for slot in range(SLOTS)]
    return [mark if mark.step > 0 else None for mark in marks]


def write(memory: Any, slot: int, mark: Mark | None) -> None:
    _MARK.pack_into(memory, slot * _MARK.size, *(mark or (NOTHING, NOTHING)))


def held(marks: Sequence[Mark | None]) -> list[Mark]:
    return sorted(mark for mark in marks if mark is not None)
