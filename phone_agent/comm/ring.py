"""Ring allreduce: carries out the schedule over a transport, receiving the next pieces while adding the last."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.schedule import Hop, Schedule, ring
from phone_agent.comm.traffic import Traffic

# Measured on four 1 Gbit/s links: a large message is announced before it is sent, so its receive should be waiting.
SEGMENT_BYTES = 512 * 1024
AHEAD = 8  # receives under way at once, one of them being added

Buffer = NDArray[Any]


class Ticket(Protocol):
    """A transfer under way."""

    def wait(self) -> None: ...


class Transport(Protocol):
    """To the right-hand neighbour, from the left-hand one, in order. An array may not be touched before its ticket."""

    def send(self, data: Buffer) -> Ticket: ...

    def receive(self, into: Buffer) -> Ticket: ...


class RingAllreduce:
    def __init__(self, rank: int, world: int, transport: Transport, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.traffic = Traffic()
        self._rank, self._world, self._transport = rank, world, transport
        self._segment_bytes = segment_bytes
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self._arrivals = np.empty((AHEAD, segment_bytes), np.uint8)

    def allreduce(self, buffer: Buffer) -> None:
        started = time.monotonic()
        schedule = self._schedule(len(buffer), buffer.itemsize)
        arrivals = self._arrivals.view(buffer.dtype)
        _Round(schedule, buffer, arrivals, self._transport).run()
        self.traffic.add(schedule.sent * buffer.itemsize, time.monotonic() - started)

    def _schedule(self, length: int, itemsize: int) -> Schedule:
        key = (length, itemsize)
        if key not in self._schedules:
            self._schedules[key] = ring(self._rank, self._world, length, self._segment_bytes // itemsize)
        return self._schedules[key]


class _Round:
    """One allreduce under way."""

    def __init__(self, schedule: Schedule, buffer: Buffer, arrivals: Buffer, transport: Transport) -> None:
        self._schedule, self._buffer, self._arrivals, self._transport = schedule, buffer, arrivals, transport
        self._sends: list[Ticket] = []
        self._receives: deque[tuple[Buffer, Ticket]] = deque()
        self._posted = 0
        self._taken = 0

    def run(self) -> None:
        for piece in self._schedule.first:
            self._send(piece)
        hops = self._schedule.hops
        for position, hop in enumerate(hops):
            while self._posted < min(position + AHEAD, len(hops)) and self._may_post(hops[self._posted]):
                self._post(hops[self._posted])
            self._finish(hop)
        for ticket in self._sends:
            ticket.wait()

    def _send(self, piece: slice) -> None:
        self._sends.append(self._transport.send(self._buffer[piece]))

    def _may_post(self, hop: Hop) -> bool:
        """With fewer elements than ranks, a piece may be due back before it was even sent."""
        return hop.add or self._taken < len(self._sends)

    def _post(self, hop: Hop) -> None:
        if hop.add:
            into = self._arrivals[self._posted % AHEAD, : hop.piece.stop - hop.piece.start]
        else:
            self._sends[self._taken].wait()  # it may still be reading what this receive writes over
            self._taken += 1
            into = self._buffer[hop.piece]
        self._receives.append((into, self._transport.receive(into)))
        self._posted += 1

    def _finish(self, hop: Hop) -> None:
        arrived, ticket = self._receives.popleft()
        ticket.wait()
        if hop.add:
            own = self._buffer[hop.piece]
            np.add(own, arrived, out=own)
        if hop.forward:
            self._send(hop.piece)
