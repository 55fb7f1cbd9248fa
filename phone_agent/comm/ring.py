"""One ring over all ranks."""

from __future__ import annotations

import time

from phone_agent.comm import schedule
from phone_agent.comm.residuals import Residuals
from phone_agent.comm.rounds import SEGMENT_BYTES, SHORTEST_BYTES, Job, Note, Pool, Round, carry_out
from phone_agent.comm.schedule import Schedule
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.wire import Floats, Wire, fitting
from phone_agent.comm.world import World

PIECES = 2  # of a chunk, at least: while one is added and announced, the other keeps the line busy
LONGEST_BYTES = 4 * SEGMENT_BYTES  # of a piece, where there are many
MANY = 24  # pieces of a chunk. Announced ones arrive side by side: of few, the next chunk waits for all


class RingAllreduce:
    """Neighbours are the next and the previous rank: the order of the hostfile, and so of the switches."""

    note: Note | None = None

    def __init__(self, world: World, wire: Wire, longest_bytes: int = LONGEST_BYTES) -> None:
        self.traffic = Traffic()
        self._rank, self._world = world.rank, world.size
        self._transport = world.neighbours(range(world.size), tag=0)
        self._wire, self._longest_bytes = wire, longest_bytes
        self._pool = Pool(wire.size(fitting(wire, longest_bytes)))
        self.residuals = Residuals(wire)
        self._schedules: dict[int, Schedule] = {}

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        job = Job.of(buffer, self.residuals.of(buffer), self._wire, self._pool, self.note)
        hops = self._schedule(buffer.size)
        ring = Round(hops, job, self._transport)
        carry_out([ring], self.note, self._wire.size(hops.piece))
        self.traffic.add(ring.sent_bytes, time.monotonic() - started)

    def _schedule(self, length: int) -> Schedule:
        if length not in self._schedules:
            piece = piece_length(length // self._world, self._wire, self._longest_bytes)
            chunks = schedule.cut(slice(0, length), self._world, piece)
            self._schedules[length] = schedule.allreduce(self._rank, chunks)
        return self._schedules[length]


def piece_length(chunk: int, wire: Wire, longest_bytes: int) -> int:
    """Numbers in a piece. Where there are many, long ones cost least: the receiver is asked for them, and they arrive
    in their place. Elsewhere nobody should have to wait for an answer."""
    most = fitting(wire, longest_bytes)
    if chunk >= MANY * most:
        return most
    shortest, longest = (fitting(wire, size) for size in (SHORTEST_BYTES, SEGMENT_BYTES))
    return min(most, longest, max(shortest, -(-chunk // PIECES)))
