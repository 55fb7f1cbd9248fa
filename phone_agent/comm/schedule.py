"""Rings as schedules: who sends which piece when. Pure; core/src/rings.c carries them out.

A buffer is cut into one chunk a rank and each chunk into pieces. A rank sends its own chunk to the right, piece by
piece, and then handles what comes from the left in order: in the first K - 1 chunks it adds the piece to its own and
passes the sum on (reduce-scatter); in the next K - 1 it takes the finished piece over and passes it on (all-gather).
Every rank sends 2 (K - 1) / K of the buffer, the least there can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phone_agent.core.ops import RingOp

Chunk = tuple[slice, ...]  # its pieces


@dataclass(frozen=True)
class Hop:
    piece: slice
    op: RingOp
    forward: bool


@dataclass(frozen=True)
class Schedule:
    """In an allreduce, the k-th hop that takes over is for the piece of the k-th send: it must have left by then."""

    first: Chunk
    hops: tuple[Hop, ...]
    most: int = 0  # pieces that any rank begins with

    @property
    def piece(self) -> int:
        """Numbers in the first that arrives: no other is longer, but by one."""
        return self.hops[0].piece.stop - self.hops[0].piece.start if self.hops else 0

    @property
    def handled(self) -> Chunk:
        """What this rank begins with, and what it receives."""
        return (*self.first, *(hop.piece for hop in self.hops))

    @property
    def sent(self) -> Chunk:
        """What this rank sends, in order."""
        return (*self.first, *(hop.piece for hop in self.hops if hop.forward))


def allreduce(position: int, chunks: Sequence[Chunk]) -> Schedule:
    if len(chunks) == 1:
        return Schedule((), ())
    hops = (*_adds(position, chunks, RingOp.REDUCE_FINAL), *_takes(position, chunks))
    return Schedule(chunks[position], hops, _most(chunks))


def reduce_scatter(position: int, chunks: Sequence[Chunk]) -> Schedule:
    """The rank ends with the sum of chunk `owned(position, …)`."""
    if len(chunks) == 1:
        return Schedule((), ())
    return Schedule(chunks[position], tuple(_adds(position, chunks, RingOp.REDUCE)), _most(chunks))


def all_gather(position: int, chunks: Sequence[Chunk]) -> Schedule:
    """The rank starts with the sum of chunk `owned(position, …)`."""
    if len(chunks) == 1:
        return Schedule((), ())
    return Schedule(chunks[owned(position, len(chunks))], tuple(_takes(position, chunks)), _most(chunks))


def owned(position: int, world: int) -> int:
    """The chunk that is complete at this position after the reduce-scatter."""
    return (position + 1) % world


def cut(whole: slice, parts: int, segment: int) -> tuple[Chunk, ...]:
    """Chunks that differ by one element at most, in pieces of at most `segment`."""
    return tuple(tuple(_pieces(part, segment)) for part in split(whole, parts))


def split(whole: slice, parts: int) -> list[slice]:
    length = whole.stop - whole.start
    bounds = [whole.start + length * part // parts for part in range(parts + 1)]
    return [slice(low, high) for low, high in pairwise(bounds)]


def _adds(position: int, chunks: Sequence[Chunk], last: RingOp) -> Iterator[Hop]:
    world = len(chunks)
    for turn in range(1, world):
        final = turn == world - 1
        op, forward = (last, last is RingOp.REDUCE_FINAL) if final else (RingOp.REDUCE, True)
        yield from (Hop(piece, op, forward) for piece in chunks[(position - turn) % world])


def _takes(position: int, chunks: Sequence[Chunk]) -> Iterator[Hop]:
    world = len(chunks)
    for turn in range(world - 1):
        yield from (Hop(piece, RingOp.COPY, turn < world - 2) for piece in chunks[(position - turn) % world])


def _most(chunks: Sequence[Chunk]) -> int:
    return max(map(len, chunks))


def _pieces(part: slice, segment: int) -> Iterator[slice]:
    for low in range(part.start, part.stop, segment):
        yield slice(low, min(low + segment, part.stop))
