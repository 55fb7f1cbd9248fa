"""How fast the line is: every rank sends to the right and receives from the left at once, as the ring will.

Takes a few hundred milliseconds: messages grow until one takes long enough to be timed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.world import Ticket, Transport, World

TAG = 1 << 14  # beyond those of any collective
GREETINGS = 20
FIRST_BYTES, MOST_BYTES = 64 * 1024, 16 * 1024 * 1024
LONG_ENOUGH_S = 0.06
AGAIN = 3  # times at the last size, of which the best counts: connections warm up, and others want the processor too
NAP_S = 0.0001


@dataclass(frozen=True)
class Line:
    """Between neighbours: seconds before anything arrives, then bytes a second on the slowest cable of each kind."""

    latency_s: float
    inside: float
    across: float  # between switches

    @property
    def slowest(self) -> float:
        return min(self.inside, self.across)


def probe(world: World, groups: Sequence[str]) -> Line | None:
    """The same on all ranks; none where there is nobody to talk to. `groups`: each rank's switch."""
    if world.size == 1:
        return None
    transport = world.neighbours(range(world.size), TAG)
    latency = min(_exchange(transport, np.zeros(4, np.uint8), np.empty(4, np.uint8)) for _ in range(GREETINGS))
    latencies = world.allgather(np.array([latency]))[:, 0]
    size = FIRST_BYTES
    while (seconds := _by_rank(world, transport, size)).max() < LONG_ENOUGH_S and size < MOST_BYTES:
        size *= 2
    for _ in range(AGAIN):
        seconds = np.minimum(seconds, _by_rank(world, transport, size))
    return line(float(latencies.max()), (size / seconds).tolist(), groups)


def _by_rank(world: World, transport: Transport, size: int) -> NDArray[np.float64]:
    """Seconds for a message of this size. All start together: nobody leaves an allgather before everybody is in it."""
    took = _exchange(transport, np.zeros(size, np.uint8), np.empty(size, np.uint8))
    return world.allgather(np.array([took]))[:, 0]


def line(latency_s: float, rates: Sequence[float], groups: Sequence[str]) -> Line:
    """From what each rank received in a second from the one before it."""
    crossing = [groups[rank] != groups[rank - 1] for rank in range(len(groups))]
    inside = [rate for rate, crosses in zip(rates, crossing, strict=True) if not crosses]
    across = [rate for rate, crosses in zip(rates, crossing, strict=True) if crosses]
    return Line(latency_s, min(inside or across), min(across or inside))


def _exchange(transport: Transport, send: NDArray[np.uint8], into: NDArray[np.uint8]) -> float:
    started = time.monotonic()
    tickets: list[Ticket] = [transport.receive(into), transport.send(send)]
    while not all(ticket.done() for ticket in tickets):
        time.sleep(NAP_S)
    return time.monotonic() - started
