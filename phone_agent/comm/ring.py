"""Ring allreduce over all ranks."""

from __future__ import annotations

from phone_agent.comm import schedule
from phone_agent.comm.collective import ScheduledAllreduce
from phone_agent.comm.executor import (
    MIN_MESSAGE_BYTES,
    SEGMENT_BYTES,
    ExecutorContext,
    Ring,
    ScheduleExecutor,
    Stage,
    poll_intervals_ns,
)
from phone_agent.comm.wire import Wire, floats_in
from phone_agent.comm.world import World

MIN_PIECES = 2  # per chunk: while one is reduced and announced, the other keeps the link busy
MAX_PIECE_BYTES = 4 * SEGMENT_BYTES  # where a chunk has many pieces
# Pieces per chunk from which long pieces pay. MPI announces long messages (rendezvous) and they arrive in parallel:
# with few pieces, the next chunk would wait for all of them.
MANY_PIECES = 24


class RingAllreduce(ScheduledAllreduce):
    """Neighbors are the next and the previous rank: hostfile order, which follows the switches."""

    def __init__(self, world: World, wire: Wire, max_piece_bytes: int = MAX_PIECE_BYTES) -> None:
        super().__init__(world, wire)
        self._max_piece_bytes = max_piece_bytes

    def _plan(self, length: int, context: ExecutorContext) -> ScheduleExecutor:
        world, wire = self._world, self._wire
        piece = piece_length(length // world.size, wire, self._max_piece_bytes)
        hops = schedule.allreduce(world.rank, schedule.make_chunks(slice(0, length), world.size, piece))
        ring = Ring(hops, world.neighbors(range(world.size), tag=0))
        return ScheduleExecutor([Stage((ring,))], wire, poll_intervals_ns(wire.size(hops.piece_length)), context)


def piece_length(chunk: int, wire: Wire, max_piece_bytes: int) -> int:
    """Floats per piece.

    Where a chunk has many pieces, long ones are cheapest: MPI asks the receiver first (rendezvous) and the data arrives
    in its final place. Otherwise pieces stay short enough for MPI to send them without asking (eager).
    """
    most = floats_in(wire, max_piece_bytes)
    if chunk >= MANY_PIECES * most:
        return most
    shortest, longest = (floats_in(wire, size) for size in (MIN_MESSAGE_BYTES, SEGMENT_BYTES))
    return min(most, longest, max(shortest, -(-chunk // MIN_PIECES)))
