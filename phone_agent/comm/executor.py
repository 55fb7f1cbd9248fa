"""Hands schedules to the core, which carries them out: core/src/rings.c.

Rings are put into its form once for all buffers of a length: training sums the same few lengths again and again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.schedule import Hop, Schedule
from phone_agent.comm.wire import Floats, Wire
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core import ops
from phone_agent.core.library import library
from phone_agent.core.thread_pool import ALIGNMENT, ThreadPool, aligned

SEGMENT_BYTES = 256 * 1024  # on the wire; mca-params.conf has Open MPI send as much at once, without asking first
SHORTEST_BYTES = 64 * 1024  # shorter messages cost more in starting than in sending
NOWHERE = -1
SPANS = 4096  # that the core may note before it hands them over: more than there are rings
_SHORTEST_NAP_NS = 50_000
_LONGEST_NAP_NS = 400_000  # where pieces are short; the kernel's buffers hold many times what arrives meanwhile
_NAP_NS_A_BYTE = 2  # of a piece: a quarter of the time that a 1 Gbit/s link takes for it

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


class Workshop:
    """What all sums of a collective share, one after the other: a thread's part of the core, memory for pieces on the
    wire (the core touches no more of it than it needs) and for what is told."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.core, self.pool = calls, library(), ThreadPool(1)
        self._memory: NDArray[np.uint8] = aligned(0, np.uint8)
        self._spans = (ops.Span * SPANS)()
        self._given_up = False

    def carry_out(self, job: ops.Allreduce, note: Note | None) -> None:
        if self._given_up:
            raise AgentError(
                "a sum before this one was given up: its messages may still be under way", code=ErrorCode.MPI_FAILED
            )
        job.slots = self._room(job.slot_bytes * job.slot_count)
        job.spans, job.span_capacity = (ctypes.addressof(self._spans), SPANS) if note else (None, 0)
        self._given_up = True
        self.core.core_allreduce_reset(ctypes.addressof(job))
        status = ops.RingStatus.PENDING
        while status == ops.RingStatus.PENDING:
            status = self.core.core_allreduce_run(ctypes.addressof(job))
            if note:
                _tell(note, self._spans[: job.span_count])
                job.span_count = 0
        if status == ops.RingStatus.FAILED:
            raise self.calls.failed(job.error)
        self._given_up = False

    def _room(self, size: int) -> int:
        if self._memory.size < size:
            self._memory = aligned(size, np.uint8)
        return int(self._memory.ctypes.data)


class Rounds:
    """Stages in the core's form, for buffers of one length. `naps`: of who waits, in nanoseconds: the first, which
    doubles up to the second."""

    def __init__(self, stages: Sequence[Stage], wire: Wire, naps: tuple[int, int], workshop: Workshop) -> None:
        self._wire, self._workshop = wire, workshop
        self._arrays: list[ctypes.Array[ctypes.Structure]] = []  # what the job points to
        rings = [ring for stage in stages for ring in stage.rings]
        places = {} if wire.exact else _places(rings)
        self._rings = self._array(ops.Ring, [self._ring(ring, places) for ring in rings])
        slots = sum(ring.max_slots for ring in self._rings) + len(places)
        self._free, self._finished = (ctypes.c_void_p * slots)(), (ctypes.c_void_p * len(places))()
        calls = workshop.calls
        self._job = ops.Allreduce(
            rings=ctypes.addressof(self._rings), ring_count=len(rings),
            stages=self._address(ops.Stage, list(_stages(stages))), stage_count=len(stages),
            thread_pool=workshop.pool.address, dtype=wire.dtype,
            send=calls.send, receive=calls.receive, test=calls.test, datatype=calls.datatype, comm=calls.comm,
            min_sleep_ns=naps[0], max_sleep_ns=naps[1],
            slot_bytes=self._slot_bytes(rings), slot_count=slots,
            free_slots=ctypes.addressof(self._free), cached_slots=ctypes.addressof(self._finished),
        )  # fmt: skip

    def carry_out(self, buffer: Floats, residual: Floats | None, note: Note | None = None) -> int:
        """Sums in place; how many bytes this rank sent."""
        if buffer.dtype != np.float32 or not buffer.flags.c_contiguous:
            raise AgentError("only float32 in a row can be summed", code=ErrorCode.INTERNAL_ERROR)
        self._job.buffer, self._job.residual = buffer.ctypes.data, None if residual is None else residual.ctypes.data
        self._workshop.carry_out(self._job, note)
        return sum(ring.bytes_sent for ring in self._rings)

    def _ring(self, ring: Ring, places: dict[int, int]) -> ops.Ring:
        schedule, neighbours = ring.schedule, ring.neighbours
        finished = places if ring.gathers else {}
        first = [self._hop(piece, finished.get(piece.start, NOWHERE)) for piece in schedule.first]
        hops = [self._hop(hop.piece, _kept(hop, places), hop.op, forward=hop.forward) for hop in schedule.hops]
        return ops.Ring(
            initial=self._address(ops.Hop, first), initial_count=len(first),
            hops=self._address(ops.Hop, hops), hop_count=len(hops),
            receives=self._address(ops.Message, [ops.Message()] * ops.RING_MAX_IN_FLIGHT),
            sends=self._address(ops.Message, [ops.Message()] * len(schedule.sent)),
            left_rank=neighbours.left, right_rank=neighbours.right, tag=neighbours.tag, is_allgather=ring.gathers,
            max_slots=ops.RING_MAX_IN_FLIGHT + (0 if self._wire.exact else schedule.most),
        )  # fmt: skip

    def _hop(self, piece: slice, kept: int, op: ops.RingOp = ops.RingOp.REDUCE, *, forward: bool = False) -> ops.Hop:
        count = piece.stop - piece.start
        return ops.Hop(piece.start, count, self._wire.size(count), op, forward, kept)

    def _slot_bytes(self, rings: Sequence[Ring]) -> int:
        pieces = (piece for ring in rings for piece in ring.schedule.handled)
        longest = max((self._wire.size(piece.stop - piece.start) for piece in pieces), default=0)
        return longest + -longest % ALIGNMENT

    def _address(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> int:
        return ctypes.addressof(self._array(kind, items))

    def _array(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> ctypes.Array[ctypes.Structure]:
        made = (kind * len(items))(*items)
        self._arrays.append(made)
        return made


def naps(piece_bytes: int = 0) -> tuple[int, int]:
    """Nanoseconds. Where pieces are long, naps are: what arrives meanwhile is read at one go."""
    first = max(_SHORTEST_NAP_NS, piece_bytes * _NAP_NS_A_BYTE)
    return first, max(_LONGEST_NAP_NS, first)


def _places(rings: Sequence[Ring]) -> dict[int, int]:
    """Where rounded pieces are kept, by where they start, from when they are finished until they are gathered."""
    gathered = (piece for ring in rings if ring.gathers for piece in ring.schedule.first)
    return {piece.start: place for place, piece in enumerate(gathered)}


def _kept(hop: Hop, places: dict[int, int]) -> int:
    """Only what is finished, or arrives so, is sent by others as it is."""
    return NOWHERE if hop.op is ops.RingOp.REDUCE else places.get(hop.piece.start, NOWHERE)


def _stages(stages: Sequence[Stage]) -> Iterator[ops.Stage]:
    first = 0
    for stage in stages:
        after, after_too = (*stage.after, NOWHERE, NOWHERE)[:2]
        yield ops.Stage(first, len(stage.rings), after, after_too)
        first += len(stage.rings)


def _tell(note: Note, spans: Sequence[ops.Span]) -> None:
    for span in spans:
        note(ops.SpanKind(span.kind).name.lower(), span.started / 1e9, span.ended / 1e9)
