"""One ring over all ranks."""

from __future__ import annotations

import time

from phone_agent.comm import schedule
from phone_agent.comm.residuals import Residuals
from phone_agent.comm.rounds import SEGMENT_BYTES, SHORTEST_BYTES, Note, Ring, Rounds, Scratch, Stage, naps
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
        self._world, self._neighbours = world, world.neighbours(range(world.size), tag=0)
        self._wire, self._longest_bytes = wire, longest_bytes
        self._scratch = Scratch()
        self.residuals = Residuals(wire)
        self._rounds: dict[int, Rounds] = {}

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        sent = self._round(buffer.size).carry_out(buffer, self.residuals.of(buffer), self.note)
        self.traffic.add(sent, time.monotonic() - started)

    def _round(self, length: int) -> Rounds:
        if length not in self._rounds:
            world, wire = self._world, self._wire
            piece = piece_length(length // world.size, wire, self._longest_bytes)
            hops = schedule.allreduce(world.rank, schedule.cut(slice(0, length), world.size, piece))
            stages = (Stage((Ring(hops, self._neighbours),)),)
            self._rounds[length] = Rounds(stages, wire, world.calls(), self._scratch, naps(wire.size(hops.piece)))
        return self._rounds[length]


def piece_length(chunk: int, wire: Wire, longest_bytes: int) -> int:
    """Numbers in a piece. Where there are many, long ones cost least: the receiver is asked for them, and they arrive
    in their place. Elsewhere nobody should have to wait for an answer."""
    most = fitting(wire, longest_bytes)
    if chunk >= MANY * most:
        return most
    shortest, longest = (fitting(wire, size) for size in (SHORTEST_BYTES, SEGMENT_BYTES))
    return min(most, longest, max(shortest, -(-chunk // PIECES)))
