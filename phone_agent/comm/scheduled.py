"""Sums by schedules of our own, whichever: what all of them have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from phone_agent.comm.executor import Note, Rounds, Workshop
from phone_agent.comm.residuals import Residuals
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.wire import Floats, Wire
from phone_agent.comm.world import World


class ScheduledAllreduce(ABC):
    note: Note | None = None

    def __init__(self, world: World, wire: Wire) -> None:
        self.traffic, self.residuals = Traffic(), Residuals(wire)
        self._world, self._wire = world, wire
        self._workshop = Workshop(world.calls())
        self._rounds: dict[int, Rounds] = {}

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        if buffer.size not in self._rounds:
            self._rounds[buffer.size] = self._plan(buffer.size)
        sent = self._rounds[buffer.size].carry_out(buffer, self.residuals.of(buffer), self.note)
        self.traffic.add(sent, time.monotonic() - started)

    @abstractmethod
    def _plan(self, length: int) -> Rounds:
        """For buffers of so many numbers."""
