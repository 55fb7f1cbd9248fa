"""Allreduce benchmark: times an allreduce between the phones, and checks its result against a known sum."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.collective import Collective
from phone_agent.comm.factory import make_collective
from phone_agent.comm.hierarchical import assign_groups
from phone_agent.comm.reducer import ChunkwiseReducer, PackedReducer, parameter_offsets
from phone_agent.comm.wire import wire_format
from phone_agent.comm.world import World

PERIOD = 1000  # sums stay below 2^24, so exact in fp32, up to a hundred times the phones of a rack
PERIODS_PER_BLOCK = 64
DEFAULT_MODEL, DEFAULT_MB = "resnet50", 97.7
ROUNDING = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 2.0**-7}  # of the largest number in a block


@dataclass(frozen=True)
class AllreduceCase:
    algorithm: str = "ring"
    wire: str = "fp32"
    switches: Sequence[str] | None = None  # of each rank
    group: int = 0  # largest group of a hierarchical allreduce; 0: one group per switch
    megabytes: float | None = None
    model: str | None = None  # whose parameters chunkwise sums one by one; gives the size if `megabytes` does not


class SumPattern:
    """Input of the ranks: integers so small that their sum is exact and known.

    Works block by block: between two timed sums, nothing may allocate memory, which some kernels are slow to provide.
    """

    def __init__(self, ranks: int) -> None:
        self._pattern = np.tile(np.arange(PERIOD, dtype=np.float32), PERIODS_PER_BLOCK)
        self._expected = self._pattern * ranks + ranks * (ranks - 1) // 2
        self._difference = np.empty_like(self._expected)
        self.largest = float(self._expected.max())

    def fill(self, buffer: NDArray[np.float32], rank: int) -> None:
        for block in self._blocks(buffer):
            np.add(self._pattern[: block.size], rank, out=block)

    def check(self, buffer: NDArray[np.float32]) -> tuple[float, int]:
        """The largest error of the sum, and a checksum of its bits."""
        errors = np.array([self._error(block) for block in self._blocks(buffer)])
        return float(errors.max(initial=0.0)), zlib.crc32(buffer.data)

    def _error(self, block: NDArray[np.float32]) -> float:
        difference = np.subtract(block, self._expected[: block.size], out=self._difference[: block.size])
        return float(np.abs(difference, out=difference).max())

    def _blocks(self, buffer: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        length = self._pattern.size
        return (buffer[start : start + length] for start in range(0, buffer.size, length))


def run(world: World, case: AllreduceCase, repeats: int) -> dict[str, Any]:
    """A repeat takes as long as its slowest rank, and the best repeat counts.

    A warm-up before them is not counted: connections are established in it and find their rate.
    """
    wire = wire_format(case.wire)
    groups = assign_groups(case.switches, case.group) if case.switches else None
    collective = make_collective(case.algorithm, world, wire, groups)
    length, offsets = _layout(case)
    allreduce = _allreduce(collective, offsets if case.algorithm == "chunkwise" else None)
    pattern, buffer = SumPattern(world.size), np.zeros(length, np.float32)
    seconds, cpu, correct = [], [], True
    _time_slowest(world, allreduce, buffer)
    for _ in range(repeats):
        pattern.fill(buffer, world.rank)
        elapsed_s, cpu_s = _time_slowest(world, allreduce, buffer)
        seconds.append(elapsed_s)
        cpu.append(cpu_s)
        tolerance = world.size * ROUNDING[case.wire] * pattern.largest
        correct = correct and _ranks_agree(world, pattern.check(buffer), tolerance)
    return {
        "seconds": min(seconds),
        "all": seconds,
        "cpu_seconds": min(cpu),
        "bytes": buffer.nbytes,
        "encoded_bytes": wire.size(length),
        "sent_bytes": collective.traffic.bytes // (1 + repeats),
        "world": world.size,
        "correct": correct,
        "algorithm": case.algorithm,
        "wire": case.wire,
    }


def _layout(case: AllreduceCase) -> tuple[int, list[int]]:
    """Buffer length, and where each parameter starts: those of a model, stretched to the requested size."""
    from phone_agent.models import build
    from phone_agent.nn.packing import Packing, backward_order

    if case.model is None and case.algorithm != "chunkwise":
        return round((case.megabytes or DEFAULT_MB) * 1e6 / 4), []
    packing = Packing(backward_order(build(case.model or DEFAULT_MODEL)))
    length = packing.size if case.megabytes is None else round(case.megabytes * 1e6 / 4)
    return length, sorted({start * length // packing.size for start in parameter_offsets(packing)})


def _allreduce(collective: Collective, offsets: list[int] | None) -> Callable[[NDArray[np.float32]], None]:
    reducer = PackedReducer(collective) if offsets is None else ChunkwiseReducer(collective, offsets)
    return lambda buffer: reducer.reduce(buffer, slice(0, buffer.size), step=1)


def _time_slowest(
    world: World, allreduce: Callable[[NDArray[np.float32]], None], buffer: NDArray[np.float32]
) -> tuple[float, float]:
    """Elapsed seconds of the slowest rank, and CPU seconds of the busiest."""
    world.allgather(np.zeros(1))  # barrier
    started, cpu_started = time.monotonic(), time.process_time()
    allreduce(buffer)
    row = np.array([time.monotonic() - started, time.process_time() - cpu_started])
    most = world.allgather(row).max(axis=0)
    return float(most[0]), float(most[1])


def _ranks_agree(world: World, checked: tuple[float, int], tolerance: float) -> bool:
    """All ranks have the same bits, within the tolerance of the wire format."""
    error, checksum = checked
    rows = world.allgather(np.array([error <= tolerance, checksum], np.float64))
    return bool(rows[:, 0].all() and (rows[:, 1] == rows[0, 1]).all())
