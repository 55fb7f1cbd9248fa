"""Hands schedules to the core, which carries them out: core/src/rings.c.

Rings are put into its form once for all buffers of a length: training sums the same few lengths again and again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.schedule import Schedule
from phone_agent.comm.wire import Floats, Wire
from phone_agent.core import ops
from phone_agent.core.library import library
from phone_agent.core.team import ALIGNMENT, Team, aligned

SEGMENT_BYTES = 256 * 1024  # on the wire; mca-params.conf has Open MPI send as much at once, without asking first
SHORTEST_BYTES = 64 * 1024  # shorter messages cost more in starting than in sending
NOWHERE = -1
SPANS = 4096  # that the core may note before it hands them over
_SHORTEST_NAP_NS = 50_000
_LONGEST_NAP_NS = 400_000  # where pieces are short; the kernel's buffers hold many times what arrives meanwhile
_NAP_NS_A_BYTE = 2  # of a piece: a quarter of the time that a 1 Gbit/s link takes for it
_NAMES = {ops.Doing.SEND: "send", ops.Doing.RECEIVE: "receive", ops.Doing.REDUCE: "reduce"}

Note = Callable[[str, float, float], None]  # what ("send", "receive", "reduce"), from when, until when


@dataclass(frozen=True)
class Calls:
    """What the core calls: where MPI_Isend, MPI_Irecv and MPI_Test lie, or what looks like them, and what to give them.
    `failed`: what to raise for what one of them returned."""

    send: int
    receive: int
    test: int
    datatype: int
    comm: int
    failed: Callable[[int], Exception]


class Neighbours(Protocol):
    """A rank's in a ring. Messages of a tag arrive in order."""

    left: int
    right: int
    tag: int


@dataclass(frozen=True)
class Ring:
    """What goes round between whom, whichever buffer it is of."""

    schedule: Schedule
    neighbours: Neighbours
    gathers: bool = False  # it begins with what is finished


@dataclass(frozen=True)
class Stage:
    """Rings that go on at the same time, once those stages (by their place) are over."""

    rings: tuple[Ring, ...]
    after: tuple[int, ...] = ()


class Scratch:
    """Memory for pieces on the wire. The core touches no more of it than it needs."""

    def __init__(self) -> None:
        self._held: NDArray[np.uint8] = aligned(0, np.uint8)

    def at(self, size: int) -> int:
        if self._held.size < size:
            self._held = aligned(size, np.uint8)
        address: int = self._held.ctypes.data
        return address


@dataclass
class Rounds:
    """Rings under way, on the calling thread. `naps`: of who waits, in nanoseconds: the first, which doubles up to the
    second."""

    stages: Sequence[Stage]
    wire: Wire
    calls: Calls
    scratch: Scratch
    naps: tuple[int, int]
    _job: ops.Allreduce = field(init=False)
    _kept: list[ctypes.Array[ctypes.Structure]] = field(init=False, default_factory=list)  # what the job points to

    def __post_init__(self) -> None:
        self._team, self._core = Team(1), library()
        places = self._places()
        rings = [ring for stage in self.stages for ring in stage.rings]
        self._rings = self._array(ops.Ring, [self._ring(ring, places) for ring in rings])
        stages = self._array(ops.Stage, list(_stages(self.stages)))
        slots = sum(ring.room for ring in self._rings) + len(places)
        self._free, self._finished = (ctypes.c_void_p * slots)(), (ctypes.c_void_p * len(places))()
        calls, (first_nap, longest_nap) = self.calls, self.naps
        self._job = ops.Allreduce(
            rings=ctypes.addressof(self._rings), ring_count=len(rings),
            stages=ctypes.addressof(stages), stage_count=len(self.stages),
            pool=self._team.pool, number=self.wire.number,
            send=calls.send, receive=calls.receive, test=calls.test, datatype=calls.datatype, comm=calls.comm,
            first_nap=first_nap, longest_nap=longest_nap,
            slot_bytes=self._slot_bytes(rings), slot_count=slots,
            free=ctypes.addressof(self._free), kept=ctypes.addressof(self._finished),
        )  # fmt: skip

    def carry_out(self, buffer: Floats, residual: Floats | None, note: Note | None = None) -> int:
        """Sums in place; how many bytes this rank sent."""
        job = self._job
        job.buffer, job.residual = buffer.ctypes.data, None if residual is None else residual.ctypes.data
        job.slots = self.scratch.at(job.slot_bytes * job.slot_count)
        spans = (ops.Span * (SPANS + job.ring_count))() if note else None
        job.spans, job.span_room = (ctypes.addressof(spans), len(spans)) if spans else (None, 0)
        at = ctypes.addressof(job)
        self._core.core_rings_begin(at)
        outcome = ops.Outcome.AGAIN
        while outcome == ops.Outcome.AGAIN:
            outcome = self._core.core_rings(at)
            if note and spans:
                _tell(note, spans[: job.span_count])
                job.span_count = 0
        if outcome == ops.Outcome.FAILED:
            raise self.calls.failed(job.error)
        return sum(ring.sent_bytes for ring in self._rings)

    def _places(self) -> dict[int, int]:
        """Where rounded pieces are kept, by where they start, from when they are finished until they are gathered."""
        if self.wire.exact:
            return {}
        gathering = [ring for stage in self.stages for ring in stage.rings if ring.gathers]
        return {piece.start: place for place, piece in enumerate(p for ring in gathering for p in ring.schedule.first)}

    def _ring(self, ring: Ring, places: dict[int, int]) -> ops.Ring:
        schedule, neighbours = ring.schedule, ring.neighbours
        first = [self._hop(piece, places) for piece in schedule.first]
        hops = [self._hop(hop.piece, places, hop.errand, forward=hop.forward) for hop in schedule.hops]
        return ops.Ring(
            first=self._address(ops.Hop, first), first_count=len(first),
            hops=self._address(ops.Hop, hops), hop_count=len(hops),
            arriving=self._address(ops.Letter, [ops.Letter()] * ops.RINGS_AHEAD),
            leaving=self._address(ops.Letter, [ops.Letter()] * len(schedule.sent)),
            left_rank=neighbours.left, right_rank=neighbours.right, tag=neighbours.tag, gathers=ring.gathers,
            room=ops.RINGS_AHEAD + (0 if self.wire.exact else schedule.most),
        )  # fmt: skip

    def _hop(
        self, piece: slice, places: dict[int, int], errand: ops.Errand = ops.Errand.ADD, *, forward: bool = False
    ) -> ops.Hop:
        count = piece.stop - piece.start
        kept = places.get(piece.start, NOWHERE)
        return ops.Hop(piece.start, count, self.wire.size(count), errand, forward, kept)

    def _slot_bytes(self, rings: Sequence[Ring]) -> int:
        pieces = (piece for ring in rings for piece in ring.schedule.handled)
        longest = max((self.wire.size(piece.stop - piece.start) for piece in pieces), default=0)
        return longest + -longest % ALIGNMENT

    def _address(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> int:
        return ctypes.addressof(self._array(kind, items))

    def _array(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> ctypes.Array[ctypes.Structure]:
        made = (kind * len(items))(*items)
        self._kept.append(made)
        return made


def naps(piece_bytes: int = 0) -> tuple[int, int]:
    """Nanoseconds. A phone's core is better spent or left cold than polling, and what arrives meanwhile is read at one
    go. Where pieces are long, naps are."""
    first = max(_SHORTEST_NAP_NS, piece_bytes * _NAP_NS_A_BYTE)
    return first, max(_LONGEST_NAP_NS, first)


def _stages(stages: Sequence[Stage]) -> Iterator[ops.Stage]:
    first = 0
    for stage in stages:
        after, after_too = (*stage.after, NOWHERE, NOWHERE)[:2]
        yield ops.Stage(first, len(stage.rings), after, after_too)
        first += len(stage.rings)


def _tell(note: Note, spans: Sequence[ops.Span]) -> None:
    for span in spans:
        note(_NAMES[span.doing], span.started / 1e9, span.ended / 1e9)
