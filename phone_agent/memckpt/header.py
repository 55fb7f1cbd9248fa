"""Header of the checkpoint memory: which attempt and step the live state and its snapshot belong to."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from phone_agent.contract.committed_step import CommittedStep

LIVE, SNAPSHOT = range(2)
SLOTS = 2
SIZE = 4096  # the state after it begins on a page boundary
INVALID = -1
_INT64 = struct.Struct("q")  # one store each: a process killed while writing leaves the old value or the new one


def read(memory: Any) -> list[CommittedStep | None]:
    """The entries for LIVE and SNAPSHOT. None: no valid step, or the writer was killed while updating it."""
    entries = [_read_entry(memory, slot) for slot in range(SLOTS)]
    return [entry if entry.step > 0 else None for entry in entries]


def _read_entry(memory: Any, slot: int) -> CommittedStep:
    attempt, step = (_INT64.unpack_from(memory, offset)[0] for offset in _offsets(slot))
    return CommittedStep(step, attempt)


def write(memory: Any, slot: int, committed: CommittedStep | None) -> None:
    """An entry is valid only while it has a step, so the step is cleared first and written last."""
    attempt, step = _offsets(slot)
    _INT64.pack_into(memory, step, INVALID)
    if committed is not None:
        _INT64.pack_into(memory, attempt, committed.attempt)
        _INT64.pack_into(memory, step, committed.step)


def set_attempt(memory: Any, slot: int, attempt: int) -> None:
    """Assign the same step to another attempt. The entry stays valid throughout."""
    _INT64.pack_into(memory, _offsets(slot)[0], attempt)


def committed_steps(entries: Sequence[CommittedStep | None]) -> list[CommittedStep]:
    return sorted({entry for entry in entries if entry is not None})


def _offsets(slot: int) -> tuple[int, int]:
    """Of the attempt and of the step."""
    start = slot * 2 * _INT64.size
    return start, start + _INT64.size
