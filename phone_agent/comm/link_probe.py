"""Link probe: every rank sends to the right and receives from the left at the same time, as a ring does.

Takes a few hundred milliseconds: messages grow until one takes long enough to be timed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.world import TransferRequest, Transport, World

TAG = 1 << 14  # above those of all collectives
LATENCY_PROBES = 20
FIRST_BYTES, MAX_BYTES = 64 * 1024, 16 * 1024 * 1024
MIN_PROBE_S = 0.06
REPEATS = 3  # at the last size; the best counts, since connections warm up and other processes use the CPU
POLL_S = 0.0001


@dataclass(frozen=True)
class LinkProfile:
    """Links between neighbors: latency in seconds, and bytes per second of the slowest link of each kind."""

    latency_s: float
    intra_switch: float
    inter_switch: float

    @property
    def slowest(self) -> float:
        return min(self.intra_switch, self.inter_switch)


def probe_links(world: World, switches: Sequence[str]) -> LinkProfile | None:
    """The same result on all ranks; None for a single rank. `switches`: the switch of each rank."""
    if world.size == 1:
        return None
    transport = world.neighbors(range(world.size), TAG)
    latency = min(_exchange(transport, np.zeros(4, np.uint8), np.empty(4, np.uint8)) for _ in range(LATENCY_PROBES))
    latencies = world.allgather(np.array([latency]))[:, 0]
    size = FIRST_BYTES
    while (seconds := _seconds_by_rank(world, transport, size)).max() < MIN_PROBE_S and size < MAX_BYTES:
        size *= 2
    for _ in range(REPEATS):
        seconds = np.minimum(seconds, _seconds_by_rank(world, transport, size))
    return link_profile(float(latencies.max()), (size / seconds).tolist(), switches)


def _seconds_by_rank(world: World, transport: Transport, size: int) -> NDArray[np.float64]:
    """Seconds for a message of this size. The allgather of the previous call is the barrier that starts all ranks."""
    took = _exchange(transport, np.zeros(size, np.uint8), np.empty(size, np.uint8))
    return world.allgather(np.array([took]))[:, 0]


def link_profile(latency_s: float, rates: Sequence[float], switches: Sequence[str]) -> LinkProfile:
    """From the bytes per second that each rank received from the rank before it."""
    crosses = [switches[rank] != switches[rank - 1] for rank in range(len(switches))]
    intra = [rate for rate, crossing in zip(rates, crosses, strict=True) if not crossing]
    inter = [rate for rate, crossing in zip(rates, crosses, strict=True) if crossing]
    return LinkProfile(latency_s, min(intra or inter), min(inter or intra))


def _exchange(transport: Transport, send: NDArray[np.uint8], into: NDArray[np.uint8]) -> float:
    started = time.monotonic()
    requests: list[TransferRequest] = [transport.receive(into), transport.send(send)]
    while not all(request.done() for request in requests):
        time.sleep(POLL_S)
    return time.monotonic() - started
