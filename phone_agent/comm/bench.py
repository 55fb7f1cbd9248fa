"""Times an allreduce between the phones, on numbers whose sum is known."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm import collective
from phone_agent.comm.world import World

PERIOD = 1000  # sums stay below 2^24 and so exact in single precision, up to a hundred times the phones of a rack


def run(world: World, megabytes: float, algorithm: str, repeats: int) -> dict[str, Any]:
    """A repeat takes as long as its slowest rank; the best repeat counts."""
    summed = collective(algorithm, world)
    pattern = np.arange(round(megabytes * 1e6 / 4), dtype=np.int64) % PERIOD
    expected = (pattern * world.size + world.size * (world.size - 1) // 2).astype(np.float32)
    buffer = np.empty(len(pattern), np.float32)
    seconds, correct = [], True
    for _ in range(repeats):
        buffer[...] = pattern + world.rank
        seconds.append(_slowest(world, summed.allreduce, buffer))
        right = np.array([np.array_equal(buffer, expected)], np.float64)
        correct = correct and bool(world.allgather(right).all())
    return {
        "seconds": min(seconds),
        "all": seconds,
        "bytes": buffer.nbytes,
        "world": world.size,
        "correct": correct,
        "algorithm": algorithm,
    }


def _slowest(world: World, allreduce: Any, buffer: NDArray[np.float32]) -> float:
    world.allgather(np.zeros(1))  # start together
    started = time.monotonic()
    allreduce(buffer)
    return float(world.allgather(np.array([time.monotonic() - started])).max())
