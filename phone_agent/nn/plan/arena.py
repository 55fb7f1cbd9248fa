"""Arena layout: liveness analysis, then one offset per buffer such that buffers share memory when not live together."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.plan.ops import Buffer, MemorySpace, OpSpec

ALIGNMENT = 64


class BufferTooLargeError(AgentError):
    """A buffer does not fit in one segment of the arena."""

    code = ErrorCode.OUT_OF_MEMORY


@dataclass(frozen=True)
class Lifetime:
    """From the first op that uses the buffer to the last, both included."""

    buffer: Buffer
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return -(-self.buffer.bytes // ALIGNMENT) * ALIGNMENT

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaLayout:
    offsets: dict[Buffer, int]
    bytes: int


def compute_lifetimes(ops: Iterable[OpSpec]) -> list[Lifetime]:
    spans: dict[Buffer, tuple[int, int]] = {}
    for index, op in enumerate(ops):
        for pointer in op.pointers():
            if pointer.buffer.space == MemorySpace.ARENA:
                first, _ = spans.get(pointer.buffer, (index, index))
                spans[pointer.buffer] = first, index
    return [Lifetime(buffer, first, last) for buffer, (first, last) in spans.items()]


def find_peak(lifetimes: Iterable[Lifetime]) -> tuple[int, int]:
    """The op with most bytes live at once, and how many: a lower bound for any layout."""
    changes: list[tuple[int, int]] = []
    for life in lifetimes:
        changes += [(life.first, life.bytes), (life.last + 1, -life.bytes)]
    changes.sort()
    most = now = when = 0
    for index, change in changes:
        now += change
        if now > most:
            most, when = now, index
    return when, most


def assign_offsets(lifetimes: Iterable[Lifetime], segment_bytes: int | None = None) -> ArenaLayout:
    """The smallest of a few greedy layouts.

    With `segment_bytes`, the arena is allocated in segments of that size, and no buffer spans two of them.
    """
    lifetimes = list(lifetimes)
    if segment_bytes is not None and (large := [life for life in lifetimes if life.bytes > segment_bytes]):
        name, need = large[0].buffer.name, large[0].bytes
        raise BufferTooLargeError(
            f"{name} needs {need} bytes, but the device allocates at most {segment_bytes} at once; reduce --batch"
        )
    peak_op, least = find_peak(lifetimes)
    layouts = []
    for order in _placement_orders(lifetimes, peak_op):
        layouts.append(_place_in_order(order, segment_bytes))
        if layouts[-1].bytes == least:
            break
    return min(layouts, key=lambda layout: layout.bytes)


def _placement_orders(lifetimes: Sequence[Lifetime], peak_op: int) -> Iterator[list[Lifetime]]:
    """Largest first, which leaves hardly any gap; those live at the peak first; largest bytes times duration first."""
    by_size = sorted(lifetimes, key=lambda life: (-life.bytes, life.first))
    yield by_size
    at_peak = [life for life in lifetimes if life.first <= peak_op <= life.last]
    yield sorted(at_peak, key=lambda life: life.first) + [life for life in by_size if life not in at_peak]
    yield sorted(lifetimes, key=lambda life: -life.bytes * (life.last - life.first + 1))


def _place_in_order(lifetimes: Iterable[Lifetime], segment_bytes: int | None) -> ArenaLayout:
    """Place each buffer at the lowest offset that is free for its whole lifetime."""
    placed: list[tuple[int, int, Lifetime]] = []  # offset, tie breaker, lifetime
    total = 0
    for index, life in enumerate(lifetimes):
        offset = _find_lowest_gap(life, placed, segment_bytes)
        insort(placed, (offset, index, life), key=lambda entry: entry[:2])
        total = max(total, offset + life.bytes)
    return ArenaLayout({life.buffer: offset for offset, _, life in placed}, total)


def _find_lowest_gap(life: Lifetime, placed: list[tuple[int, int, Lifetime]], segment_bytes: int | None) -> int:
    candidate = 0
    for offset, _, other in placed:
        if offset >= candidate + life.bytes:
            break
        if other.overlaps(life):
            candidate = max(candidate, offset + other.bytes)
            if segment_bytes is not None and candidate % segment_bytes + life.bytes > segment_bytes:
                candidate = -(-candidate // segment_bytes) * segment_bytes
    return candidate
