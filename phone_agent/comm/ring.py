"""One ring over all ranks."""

from __future__ import annotations

from phone_agent.comm import schedule
from phone_agent.comm.executor import SEGMENT_BYTES, SHORTEST_BYTES, Ring, Rounds, Stage, naps
from phone_agent.comm.scheduled import ScheduledAllreduce
from phone_agent.comm.wire import Wire, fitting
from phone_agent.comm.world import World

PIECES = 2  # of a chunk, at least: while one is added and announced, the other keeps the line busy
LONGEST_BYTES = 4 * SEGMENT_BYTES  # of a piece, where there are many
MANY = 24  # pieces of a chunk. Announced ones arrive side by side: of few, the next chunk waits for all


class RingAllreduce(ScheduledAllreduce):
    """Neighbours are the next and the previous rank: the order of the hostfile, and so of the switches."""

    def __init__(self, world: World, wire: Wire, longest_bytes: int = LONGEST_BYTES) -> None:
        super().__init__(world, wire)
        self._neighbours = world.neighbours(range(world.size), tag=0)
        self._longest_bytes = longest_bytes

    def _plan(self, length: int) -> Rounds:
        world, wire = self._world, self._wire
        piece = piece_length(length // world.size, wire, self._longest_bytes)
        hops = schedule.allreduce(world.rank, schedule.cut(slice(0, length), world.size, piece))
        return Rounds([Stage((Ring(hops, self._neighbours),))], wire, naps(wire.size(hops.piece)), self._workshop)


def piece_length(chunk: int, wire: Wire, longest_bytes: int) -> int:
    """Numbers in a piece. Where there are many, long ones cost least: the receiver is asked for them, and they arrive
    in their place. Elsewhere nobody should have to wait for an answer."""
    most = fitting(wire, longest_bytes)
    if chunk >= MANY * most:
        return most
    shortest, longest = (fitting(wire, size) for size in (SHORTEST_BYTES, SEGMENT_BYTES))
    return min(most, longest, max(shortest, -(-chunk // PIECES)))
