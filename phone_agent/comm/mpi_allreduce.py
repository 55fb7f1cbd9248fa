"""MPI_Allreduce, for comparison with our schedules."""

from __future__ import annotations

import time

from phone_agent.comm.collective import TrafficStats
from phone_agent.comm.executor import SpanCallback
from phone_agent.comm.wire import Floats
from phone_agent.comm.world import World


class MpiAllreduce:
    on_span: SpanCallback | None = None

    def __init__(self, world: World) -> None:
        self.traffic = TrafficStats()
        self._world = world

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        self._world.mpi_allreduce(buffer)
        lower_bound = 2 * (self._world.size - 1) * buffer.nbytes // self._world.size  # MPI does not report bytes
        self.traffic.add(lower_bound, time.monotonic() - started)
