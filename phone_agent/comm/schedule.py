"""The ring as a schedule: who sends which piece when. Pure; see comm.ring for what carries it out.

The buffer is cut into one chunk a rank and each chunk into pieces. A rank sends its own chunk to the right, piece by
piece, and then handles what comes from the left in order: in the first K - 1 chunks it adds the piece to its own and
passes the sum on (reduce-scatter); in the next K - 1 it takes the finished piece over and passes it on (all-gather).
Every rank sends 2 (K - 1) / K of the buffer, the least there can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Hop:
    """One piece from the left: added to what is there or written over it, and perhaps passed on."""

    piece: slice
    add: bool
    forward: bool


@dataclass(frozen=True)
class Schedule:
    """Hop number k of those that write over must not start before send number k has left: it has the same piece."""

    first: tuple[slice, ...]
    hops: tuple[Hop, ...]

    @property
    def sent(self) -> int:
        """Elements this rank sends."""
        pieces = (*self.first, *(hop.piece for hop in self.hops if hop.forward))
        return sum(piece.stop - piece.start for piece in pieces)


def ring(rank: int, world: int, length: int, segment: int) -> Schedule:
    if world == 1:
        return Schedule((), ())

    def pieces(turn: int) -> Iterator[slice]:
        return _pieces((rank - turn) % world, world, length, segment)

    adds = [Hop(piece, add=True, forward=True) for turn in range(1, world) for piece in pieces(turn)]
    takes = [Hop(piece, add=False, forward=turn < world - 2) for turn in range(world - 1) for piece in pieces(turn)]
    return Schedule(tuple(pieces(0)), (*adds, *takes))


def _pieces(chunk: int, world: int, length: int, segment: int) -> Iterator[slice]:
    start, stop = length * chunk // world, length * (chunk + 1) // world
    for low in range(start, stop, segment):
        yield slice(low, min(low + segment, stop))
