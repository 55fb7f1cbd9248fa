"""Schedule executor: translates ring schedules into the core's structs and runs them (core/src/ring_allreduce.c).

The structs are built once per buffer length: training sums the same few lengths in every step.
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
from phone_agent.contract.errors import AgentError, ErrorCode, InternalError
from phone_agent.core import ops
from phone_agent.core.library import library
from phone_agent.core.thread_pool import ALIGNMENT, ThreadPool, aligned

SEGMENT_BYTES = 256 * 1024  # on the wire; mca-params.conf sets Open MPI's eager limit to the same size
MIN_MESSAGE_BYTES = 64 * 1024  # below this, a message costs more to start than to send
MAX_SPANS = 4096  # time spans that the core records before it returns them: more than there are rings
_NO_INDEX = -1
_MIN_POLL_NS = 50_000
_MAX_POLL_NS = 400_000  # for short pieces; the kernel's socket buffers hold many times what arrives meanwhile
_POLL_NS_PER_BYTE = 2  # a quarter of the time that a 1 Gbit/s link takes for the piece

SpanCallback = Callable[[str, float, float], None]  # activity ("send", "receive", "reduce"), start, end


@dataclass(frozen=True)
class MpiFunctions:
    """Addresses of MPI_Isend, MPI_Irecv and MPI_Test (or of substitutes), and the handles to pass to them.

    `make_error` turns the error code that one of them returned into an exception.
    """

    send: int
    receive: int
    test: int
    datatype: int
    comm: int
    make_error: Callable[[int], Exception]


class RingNeighbors(Protocol):
    """The neighbors of this rank in a ring. Messages with the same tag arrive in order."""

    left: int
    right: int
    tag: int


@dataclass(frozen=True)
class Ring:
    """A schedule and the ranks it runs between, independent of any buffer."""

    schedule: Schedule
    neighbors: RingNeighbors
    gathers: bool = False  # starts with finished pieces


@dataclass(frozen=True)
class Stage:
    """Rings that run concurrently, once the stages with the indices in `after` are complete."""

    rings: tuple[Ring, ...]
    after: tuple[int, ...] = ()


class ExecutorContext:
    """What all executors of a collective share, since they run one at a time.

    A thread pool, memory for pieces on the wire (the core touches only what it needs), and memory for time spans.
    """

    def __init__(self, mpi: MpiFunctions) -> None:
        self.mpi, self.core, self.pool = mpi, library(), ThreadPool(1)
        self._slots: NDArray[np.uint8] = aligned(0, np.uint8)
        self._spans = (ops.Span * MAX_SPANS)()
        self._interrupted = False

    def run(self, job: ops.Allreduce, on_span: SpanCallback | None) -> None:
        if self._interrupted:
            raise AgentError(
                "an earlier allreduce was interrupted: its messages may still be in flight", code=ErrorCode.MPI_FAILED
            )
        job.slots = self._slot_address(job.slot_bytes * job.slot_count)
        job.spans, job.span_capacity = (ctypes.addressof(self._spans), MAX_SPANS) if on_span else (None, 0)
        self._interrupted = True
        self.core.core_allreduce_reset(ctypes.addressof(job))
        status = ops.RingStatus.PENDING
        while status == ops.RingStatus.PENDING:
            status = self.core.core_allreduce_run(ctypes.addressof(job))
            if on_span:
                _report_spans(on_span, self._spans[: job.span_count])
                job.span_count = 0
        if status == ops.RingStatus.FAILED:
            raise self.mpi.make_error(job.error)
        self._interrupted = False

    def _slot_address(self, size: int) -> int:
        if self._slots.size < size:
            self._slots = aligned(size, np.uint8)
        return int(self._slots.ctypes.data)


class ScheduleExecutor:
    """Stages as core structs, for buffers of one length. `poll_ns`: first and longest polling interval."""

    def __init__(self, stages: Sequence[Stage], wire: Wire, poll_ns: tuple[int, int], context: ExecutorContext) -> None:
        self._wire, self._context = wire, context
        self._arrays: list[ctypes.Array[ctypes.Structure]] = []  # keeps what the job points to alive
        rings = [ring for stage in stages for ring in stage.rings]
        cached = {} if wire.exact else _cached_pieces(rings)
        self._rings = self._array(ops.Ring, [self._ring(ring, cached) for ring in rings])
        slots = sum(ring.max_slots for ring in self._rings) + len(cached)
        self._free, self._finished = (ctypes.c_void_p * slots)(), (ctypes.c_void_p * len(cached))()
        mpi = context.mpi
        self._job = ops.Allreduce(
            rings=ctypes.addressof(self._rings), ring_count=len(rings),
            stages=self._address(ops.Stage, list(_stages(stages))), stage_count=len(stages),
            thread_pool=context.pool.address, dtype=wire.dtype,
            send=mpi.send, receive=mpi.receive, test=mpi.test, datatype=mpi.datatype, comm=mpi.comm,
            min_sleep_ns=poll_ns[0], max_sleep_ns=poll_ns[1],
            slot_bytes=self._slot_bytes(rings), slot_count=slots,
            free_slots=ctypes.addressof(self._free), cached_slots=ctypes.addressof(self._finished),
        )  # fmt: skip

    def run(self, buffer: Floats, residual: Floats | None, on_span: SpanCallback | None = None) -> int:
        """Sum in place. Returns the bytes that this rank sent."""
        if buffer.dtype != np.float32 or not buffer.flags.c_contiguous:
            raise InternalError("allreduce needs a contiguous float32 array")
        self._job.buffer, self._job.residual = buffer.ctypes.data, None if residual is None else residual.ctypes.data
        self._context.run(self._job, on_span)
        return sum(ring.bytes_sent for ring in self._rings)

    def _ring(self, ring: Ring, cached: dict[int, int]) -> ops.Ring:
        schedule, neighbors = ring.schedule, ring.neighbors
        finished = cached if ring.gathers else {}
        first = [self._hop(piece, finished.get(piece.start, _NO_INDEX)) for piece in schedule.first]
        hops = [self._hop(hop.piece, _cache_index(hop, cached), hop.op, forward=hop.forward) for hop in schedule.hops]
        return ops.Ring(
            initial=self._address(ops.Hop, first), initial_count=len(first),
            hops=self._address(ops.Hop, hops), hop_count=len(hops),
            receives=self._address(ops.Message, [ops.Message()] * ops.RING_MAX_IN_FLIGHT),
            sends=self._address(ops.Message, [ops.Message()] * len(schedule.sent)),
            left_rank=neighbors.left, right_rank=neighbors.right, tag=neighbors.tag, is_allgather=ring.gathers,
            max_slots=ops.RING_MAX_IN_FLIGHT + (0 if self._wire.exact else schedule.max_first),
        )  # fmt: skip

    def _hop(
        self, piece: slice, cache_index: int, op: ops.RingOp = ops.RingOp.REDUCE, *, forward: bool = False
    ) -> ops.Hop:
        count = piece.stop - piece.start
        return ops.Hop(piece.start, count, self._wire.size(count), op, forward, cache_index)

    def _slot_bytes(self, rings: Sequence[Ring]) -> int:
        pieces = (piece for ring in rings for piece in ring.schedule.handled)
        longest = max((self._wire.size(piece.stop - piece.start) for piece in pieces), default=0)
        return longest + -longest % ALIGNMENT

    def _address(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> int:
        return ctypes.addressof(self._array(kind, items))

    def _array(self, kind: type[ctypes.Structure], items: Sequence[ctypes.Structure]) -> ctypes.Array[ctypes.Structure]:
        array = (kind * len(items))(*items)
        self._arrays.append(array)
        return array


def poll_intervals_ns(piece_bytes: int = 0) -> tuple[int, int]:
    """First polling interval, which doubles up to the second.

    Long pieces are polled less often: more of a piece then arrives between two polls and is read at once.
    """
    first = max(_MIN_POLL_NS, piece_bytes * _POLL_NS_PER_BYTE)
    return first, max(_MAX_POLL_NS, first)


def _cached_pieces(rings: Sequence[Ring]) -> dict[int, int]:
    """Slots of encoded pieces, by piece start: cached from when a piece is finished until it is gathered."""
    gathered = (piece for ring in rings if ring.gathers for piece in ring.schedule.first)
    return {piece.start: index for index, piece in enumerate(gathered)}


def _cache_index(hop: Hop, cached: dict[int, int]) -> int:
    """Only finished pieces are cached: other rings forward their encoded bytes unchanged."""
    return _NO_INDEX if hop.op is ops.RingOp.REDUCE else cached.get(hop.piece.start, _NO_INDEX)


def _stages(stages: Sequence[Stage]) -> Iterator[ops.Stage]:
    first = 0
    for stage in stages:
        after, after_too = (*stage.after, _NO_INDEX, _NO_INDEX)[:2]
        yield ops.Stage(first, len(stage.rings), after, after_too)
        first += len(stage.rings)


def _report_spans(on_span: SpanCallback, spans: Sequence[ops.Span]) -> None:
    for span in spans:
        on_span(ops.SpanKind(span.kind).name.lower(), span.started / 1e9, span.ended / 1e9)
