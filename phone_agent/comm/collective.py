"""The collective interface, the base class of allreduces that run a schedule of ours in the core, and MPI_Allreduce."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.executor import ExecutorContext, ScheduleExecutor, SpanCallback
from phone_agent.comm.wire import Floats, Residuals, Wire, flush_residual
from phone_agent.comm.world import World


@dataclass
class TrafficStats:
    """Bytes sent and time spent by one rank in one collective."""

    bytes: int = 0
    seconds: float = 0.0

    def add(self, sent: int, seconds: float) -> None:
        self.bytes += sent
        self.seconds += seconds


class Collective(Protocol):
    traffic: TrafficStats
    on_span: SpanCallback | None  # called with the time span of each send, receive and reduce

    def allreduce(self, buffer: NDArray[np.float32]) -> None:
        """Sum over all ranks, in place. Every rank ends with the same bits."""
        ...


class ScheduledAllreduce(ABC):
    """Allreduce by a schedule of point-to-point messages, compiled once per buffer length.

    A single rank sends nothing, so nothing is rounded: what the wire format rounded away earlier is added to the next
    sum. Its residuals have the same layout as with several ranks, so a run can continue with more or fewer phones.
    """

    on_span: SpanCallback | None = None

    def __init__(self, world: World, wire: Wire) -> None:
        self.traffic, self.residuals = TrafficStats(), Residuals(wire)
        self._world, self._wire = world, wire
        self._context = ExecutorContext(world.mpi_functions()) if world.size > 1 else None
        self._executors: dict[int, ScheduleExecutor] = {}

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        sent = 0
        residual = self.residuals.of(buffer)
        if self._context is not None:
            sent = self._executor(buffer.size, self._context).run(buffer, residual, self.on_span)
        elif residual is not None:
            flush_residual(residual, buffer)
        self.traffic.add(sent, time.monotonic() - started)

    def _executor(self, length: int, context: ExecutorContext) -> ScheduleExecutor:
        if length not in self._executors:
            self._executors[length] = self._plan(length, context)
        return self._executors[length]

    @abstractmethod
    def _plan(self, length: int, context: ExecutorContext) -> ScheduleExecutor:
        """An executor for buffers of `length` floats."""


class MpiAllreduce:
    """For comparison with our schedules."""

    on_span: SpanCallback | None = None

    def __init__(self, world: World) -> None:
        self.traffic = TrafficStats()
        self._world = world

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        self._world.mpi_allreduce(buffer)
        lower_bound = 2 * (self._world.size - 1) * buffer.nbytes // self._world.size  # MPI does not report bytes
        self.traffic.add(lower_bound, time.monotonic() - started)
