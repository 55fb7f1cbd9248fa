"""Ring schedules: which rank sends which piece when. Pure; core/src/ring_allreduce.c executes them.

The buffer is split into one chunk per rank, and each chunk into pieces. A rank sends its own chunk to the right, piece
by piece, and then handles what arrives from the left in order. In the first K - 1 chunks it adds the piece to its own
data and forwards the sum (reduce-scatter); in the next K - 1 it stores the finished piece and forwards it (all-gather).
Every rank sends 2 (K - 1) / K of the buffer, which is the lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phone_agent.core.ops import RingOp

Chunk = tuple[slice, ...]  # its pieces


@dataclass(frozen=True)
class Hop:
    """What a rank does with one piece that arrives."""

    piece: slice
    op: RingOp
    forward: bool


@dataclass(frozen=True)
class Schedule:
    """One rank's part in a ring.

    In an allreduce, the k-th hop that stores a finished piece overwrites the piece of the k-th send, which must have
    been sent by then.
    """

    first: Chunk  # the pieces this rank starts with
    hops: tuple[Hop, ...]
    max_first: int = 0  # the most pieces that any rank starts with

    @property
    def piece_length(self) -> int:
        """Floats in the first piece that arrives. No other piece is longer by more than one."""
        return self.hops[0].piece.stop - self.hops[0].piece.start if self.hops else 0

    @property
    def handled(self) -> Chunk:
        """The pieces this rank starts with and those it receives."""
        return (*self.first, *(hop.piece for hop in self.hops))

    @property
    def sent(self) -> Chunk:
        """The pieces this rank sends, in order."""
        return (*self.first, *(hop.piece for hop in self.hops if hop.forward))


def allreduce(position: int, chunks: Sequence[Chunk]) -> Schedule:
    if len(chunks) == 1:
        return Schedule((), ())
    hops = (*_reduce_hops(position, chunks, RingOp.REDUCE_FINAL), *_gather_hops(position, chunks))
    return Schedule(chunks[position], hops, _max_pieces(chunks))


def reduce_scatter(position: int, chunks: Sequence[Chunk]) -> Schedule:
    """The rank ends with the sum of chunk `owned_chunk(position, …)`."""
    if len(chunks) == 1:
        return Schedule((), ())
    return Schedule(chunks[position], tuple(_reduce_hops(position, chunks, RingOp.REDUCE)), _max_pieces(chunks))


def all_gather(position: int, chunks: Sequence[Chunk]) -> Schedule:
    """The rank starts with the sum of chunk `owned_chunk(position, …)`."""
    if len(chunks) == 1:
        return Schedule((), ())
    first = chunks[owned_chunk(position, len(chunks))]
    return Schedule(first, tuple(_gather_hops(position, chunks)), _max_pieces(chunks))


def owned_chunk(position: int, world: int) -> int:
    """The chunk that is complete at this position after the reduce-scatter."""
    return (position + 1) % world


def make_chunks(whole: slice, parts: int, max_piece: int) -> tuple[Chunk, ...]:
    """Chunks that differ by at most one element, each in pieces of at most `max_piece` elements."""
    return tuple(tuple(_pieces(part, max_piece)) for part in split_evenly(whole, parts))


def split_evenly(whole: slice, parts: int) -> list[slice]:
    length = whole.stop - whole.start
    bounds = [whole.start + length * part // parts for part in range(parts + 1)]
    return [slice(low, high) for low, high in pairwise(bounds)]


def _reduce_hops(position: int, chunks: Sequence[Chunk], last: RingOp) -> Iterator[Hop]:
    world = len(chunks)
    for turn in range(1, world):
        final = turn == world - 1
        op, forward = (last, last is RingOp.REDUCE_FINAL) if final else (RingOp.REDUCE, True)
        yield from (Hop(piece, op, forward) for piece in chunks[(position - turn) % world])


def _gather_hops(position: int, chunks: Sequence[Chunk]) -> Iterator[Hop]:
    world = len(chunks)
    for turn in range(world - 1):
        yield from (Hop(piece, RingOp.COPY, turn < world - 2) for piece in chunks[(position - turn) % world])


def _max_pieces(chunks: Sequence[Chunk]) -> int:
    return max(map(len, chunks))


def _pieces(part: slice, max_piece: int) -> Iterator[slice]:
    for low in range(part.start, part.stop, max_piece):
        yield slice(low, min(low + max_piece, part.stop))
