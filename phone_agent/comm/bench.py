"""Times an allreduce between the phones, on numbers whose sum is known."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm import Chunkwise, Collective, Whole, collective, starts, wire_format
from phone_agent.comm.groups import divided
from phone_agent.comm.world import World

PERIOD = 1000  # sums stay below 2^24 and so exact in single precision, up to a hundred times the phones of a rack
PERIODS = 64  # in a part
USUAL_MODEL, USUAL_MB = "resnet50", 97.7
ROUNDING = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 2.0**-7}  # of the largest number in a block


@dataclass(frozen=True)
class Case:
    algorithm: str = "ring"
    wire: str = "fp32"
    switches: Sequence[str] | None = None  # of each rank
    group: int = 0  # most phones of a group of a hierarchy; 0: a switch's
    megabytes: float | None = None
    model: str | None = None  # whose parameters chunkwise sums one by one; says the size where `megabytes` does not


class Numbers:
    """What ranks sum: whole numbers, so small that their sum is exact and known. A part is made at a time: between two
    sums nothing should need memory, which some kernels take long to give."""

    def __init__(self, ranks: int) -> None:
        self._pattern = np.tile(np.arange(PERIOD, dtype=np.float32), PERIODS)
        self._expected = self._pattern * ranks + ranks * (ranks - 1) // 2
        self._off = np.empty_like(self._expected)
        self.largest = float(self._expected.max())

    def fill(self, buffer: NDArray[np.float32], rank: int) -> None:
        for part in self._parts(buffer):
            np.add(self._pattern[: part.size], rank, out=part)

    def seen(self, buffer: NDArray[np.float32]) -> tuple[float, int]:
        """How far the sum is off, and what tells its bits from others."""
        furthest = np.array([self._furthest(part) for part in self._parts(buffer)])
        return float(furthest.max(initial=0.0)), zlib.crc32(buffer.data)

    def _furthest(self, part: NDArray[np.float32]) -> float:
        off = np.subtract(part, self._expected[: part.size], out=self._off[: part.size])
        return float(np.abs(off, out=off).max())

    def _parts(self, buffer: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        length = self._pattern.size
        return (buffer[start : start + length] for start in range(0, buffer.size, length))


def run(world: World, case: Case, repeats: int) -> dict[str, Any]:
    """A repeat takes as long as its slowest rank; the best repeat counts. One before them does not: connections are
    made in it, and find their rate."""
    wire = wire_format(case.wire)
    groups = divided(case.switches, case.group) if case.switches else None
    summed = collective(case.algorithm, world, wire, groups)
    length, bounds = _layers(case)
    once = _once(summed, bounds if case.algorithm == "chunkwise" else None)
    numbers, buffer = Numbers(world.size), np.zeros(length, np.float32)
    seconds, cpu, correct = [], [], True
    _slowest(world, once, buffer)
    for _ in range(repeats):
        numbers.fill(buffer, world.rank)
        took, worked = _slowest(world, once, buffer)
        seconds.append(took)
        cpu.append(worked)
        correct = correct and _agree(world, numbers.seen(buffer), world.size * ROUNDING[case.wire] * numbers.largest)
    return {
        "seconds": min(seconds),
        "all": seconds,
        "cpu_seconds": min(cpu),
        "bytes": buffer.nbytes,
        "encoded_bytes": wire.size(length),
        "sent_bytes": summed.traffic.bytes // (1 + repeats),
        "world": world.size,
        "correct": correct,
        "algorithm": case.algorithm,
        "wire": case.wire,
    }


def _layers(case: Case) -> tuple[int, list[int]]:
    """How many numbers, and where each parameter of them starts; a network's own list, stretched to the size asked."""
    from phone_agent.models import build
    from phone_agent.nn.packing import Packing, backward_order

    if case.model is None and case.algorithm != "chunkwise":
        return round((case.megabytes or USUAL_MB) * 1e6 / 4), []
    packing = Packing(backward_order(build(case.model or USUAL_MODEL)))
    length = packing.size if case.megabytes is None else round(case.megabytes * 1e6 / 4)
    return length, sorted({start * length // packing.size for start in starts(packing)})


def _once(summed: Collective, bounds: list[int] | None) -> Callable[[NDArray[np.float32]], None]:
    reducer = Whole(summed) if bounds is None else Chunkwise(summed, bounds)
    return lambda buffer: reducer.reduce(buffer, slice(0, buffer.size), step=1)


def _slowest(
    world: World, once: Callable[[NDArray[np.float32]], None], buffer: NDArray[np.float32]
) -> tuple[float, float]:
    """Seconds, and what the busiest rank spent of its core."""
    world.allgather(np.zeros(1))  # start together
    started, worked = time.monotonic(), time.process_time()
    once(buffer)
    row = np.array([time.monotonic() - started, time.process_time() - worked])
    most = world.allgather(row).max(axis=0)
    return float(most[0]), float(most[1])


def _agree(world: World, seen: tuple[float, int], allowed: float) -> bool:
    """All ranks have the same bits, as close to the sum as the wire lets them be."""
    off, bits = seen
    rows = world.allgather(np.array([off <= allowed, bits], np.float64))
    return bool(rows[:, 0].all() and (rows[:, 1] == rows[0, 1]).all())
