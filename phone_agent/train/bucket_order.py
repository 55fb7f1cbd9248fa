"""In which order the pieces of the gradients travel. Pure.

Backward completes the last layers first, and the next forward needs the first layers first. In order of completion
forward could only start when everything has arrived; so what is needed earlier overtakes what is still waiting. All
ranks must take the pieces in the same order, whatever is ready on each: it is found once, from times all have measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phone_agent.contract.sizes import FLOAT


@dataclass(frozen=True)
class Piece:
    """Of part number `part`; the last one completes it."""

    number: int
    part: int
    where: slice
    last: bool


def pieces(parts: Sequence[slice], piece_bytes: int) -> list[Piece]:
    """Parts in order, large ones cut evenly: what is needed early need not wait for a whole large one."""
    found: list[Piece] = []
    for part, where in enumerate(parts):
        length = where.stop - where.start
        count = max(1, round(length * FLOAT / piece_bytes))
        borders = [where.start + length * index // count for index in range(count + 1)]
        found += [
            Piece(number, part, slice(low, high), last=high == where.stop)
            for number, (low, high) in enumerate(pairwise(borders), start=len(found))
        ]
    return found


@dataclass(frozen=True)
class Times:
    """Seconds of computing since the step began; `ready` and `needed` by part. Seconds each piece takes."""

    ready: Sequence[float]
    needed: Sequence[float]
    takes: Sequence[float]


def arrange(queue: Sequence[Piece], times: Times) -> list[Piece]:
    """Whenever the line is free, of the pieces that are ready the one the next forward needs first."""
    waiting = list(queue)
    order: list[Piece] = []
    now = 0.0
    while waiting:
        there = [piece for piece in waiting if times.ready[piece.part] <= now]
        if not there:
            now = min(times.ready[piece.part] for piece in waiting)
            continue
        following = min(there, key=lambda piece: (times.needed[piece.part], piece.number))
        waiting.remove(following)
        order.append(following)
        now += times.takes[following.number]
    return order
