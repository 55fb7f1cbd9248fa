"""Which of the steps that phones hold a new attempt goes on from. Pure: all ranks find the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.memckpt.header import Mark


@dataclass(frozen=True)
class Agreed:
    mark: Mark
    holders: tuple[int, ...]  # ranks


def agree(held: Sequence[Sequence[Mark]]) -> Agreed | None:
    """`held`: by rank. None: nobody holds anything.

    The newest counts, and who held it or the one before it was there to the last. If all of those hold the newest, it
    is that; if not, the one before, which they all have: then each goes on from its own copy, with what is its own
    (running statistics, what a coarse wire has yet to send), and nothing of a step that somebody announced is lost.
    Others were gone before: what they hold is of an earlier attempt, as every attempt marks what it goes on from.
    """
    newest = max((mark for marks in held for mark in marks), default=None)
    if newest is None:
        return None
    present = [marks for marks in held if any(_recent(mark, newest) for mark in marks)]
    candidates = sorted({mark for marks in present for mark in marks if _recent(mark, newest)}, reverse=True)
    common = [mark for mark in candidates if all(mark in marks for marks in present)]
    mark = (common or [newest])[0]
    return Agreed(mark, tuple(rank for rank, marks in enumerate(held) if mark in marks))


def _recent(mark: Mark, newest: Mark) -> bool:
    return mark.attempt == newest.attempt and mark.step >= newest.step - 1
