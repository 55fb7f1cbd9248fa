"""What Open MPI makes of it: for comparison."""

from __future__ import annotations

import time

from phone_agent.comm.executor import Note
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.wire import Floats
from phone_agent.comm.world import World


class MpiAllreduce:
    note: Note | None = None

    def __init__(self, world: World) -> None:
        self.traffic = Traffic()
        self._world = world

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        self._world.sum_in_place(buffer)
        least = 2 * (self._world.size - 1) * buffer.nbytes // self._world.size
        self.traffic.add(least, time.monotonic() - started)
