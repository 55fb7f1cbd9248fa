"""One allocation for all that comes and goes: a buffer has a fixed place, and others have it when it is not in use."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.plan.ops import Buffer, MemorySpace, OpSpec

ALIGNMENT = 64


class BufferTooLargeError(AgentError):
    """A buffer larger than any piece of memory there is."""

    code = ErrorCode.OUT_OF_MEMORY


@dataclass(frozen=True)
class Lifetime:
    """From the first step that touches the buffer to the last, both included."""

    buffer: Buffer
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return -(-self.buffer.bytes // ALIGNMENT) * ALIGNMENT

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaLayout:
    offsets: dict[Buffer, int]
    bytes: int


def compute_lifetimes(steps: Iterable[OpSpec]) -> list[Lifetime]:
    spans: dict[Buffer, tuple[int, int]] = {}
    for index, step in enumerate(steps):
        for place in step.places():
            if place.buffer.home == MemorySpace.ARENA:
                first, _ = spans.get(place.buffer, (index, index))
                spans[place.buffer] = first, index
    return [Lifetime(buffer, first, last) for buffer, (first, last) in spans.items()]


def find_peak(lives: Iterable[Lifetime]) -> tuple[int, int]:
    """The step with most bytes in use at once, and how many: no layout can be smaller."""
    changes: list[tuple[int, int]] = []
    for life in lives:
        changes += [(life.first, life.bytes), (life.last + 1, -life.bytes)]
    changes.sort()
    most = now = when = 0
    for step, change in changes:
        now += change
        if now > most:
            most, when = now, step
    return when, most


def assign_offsets(lives: Iterable[Lifetime], piece: int | None = None) -> ArenaLayout:
    """The smallest of a few.

    With `piece` the arena is allocated in pieces of so many bytes, and no buffer lies in two of them.
    """
    lives = list(lives)
    if piece is not None and (large := [life for life in lives if life.bytes > piece]):
        name, need = large[0].buffer.name, large[0].bytes
        raise BufferTooLargeError(
            f"{name} takes {need} bytes in one piece, the device gives {piece} at most: a smaller --batch"
        )
    step, least = find_peak(lives)
    found = []
    for order in _orders(lives, step):
        found.append(_placed(order, piece))
        if found[-1].bytes == least:
            break
    return min(found, key=lambda layout: layout.bytes)


def _orders(lives: Sequence[Lifetime], peak_step: int) -> Iterator[list[Lifetime]]:
    """Largest first leaves hardly a gap. Where it does: what is there at the peak first, as it comes; or those with
    most bytes times steps."""
    by_size = sorted(lives, key=lambda life: (-life.bytes, life.first))
    yield by_size
    at_peak = [life for life in lives if life.first <= peak_step <= life.last]
    yield sorted(at_peak, key=lambda life: life.first) + [life for life in by_size if life not in at_peak]
    yield sorted(lives, key=lambda life: -life.bytes * (life.last - life.first + 1))


def _placed(lives: Iterable[Lifetime], piece: int | None) -> ArenaLayout:
    """In this order, each at the lowest place that is free all its life."""
    placed: list[tuple[int, int, Lifetime]] = []  # offset, a number that makes ties decidable, whose
    ends = 0
    for number, life in enumerate(lives):
        offset = _lowest_gap(life, placed, piece)
        insort(placed, (offset, number, life), key=lambda entry: entry[:2])
        ends = max(ends, offset + life.bytes)
    return ArenaLayout({life.buffer: offset for offset, _, life in placed}, ends)


def _lowest_gap(life: Lifetime, placed: list[tuple[int, int, Lifetime]], piece: int | None) -> int:
    candidate = 0
    for offset, _, other in placed:
        if offset >= candidate + life.bytes:
            break
        if other.meets(life):
            candidate = max(candidate, offset + other.bytes)
            if piece is not None and candidate % piece + life.bytes > piece:
                candidate = -(-candidate // piece) * piece
    return candidate
