"""PowerSGD: a matrix of gradients travels as two thin ones whose product is close to it (Vogels et al., 2019).

With M the sum over all ranks of gradient plus residual: P = M Q^T, orthonormalised; Q = P^T M; everybody has P Q.
Both are sums of what each rank computes alone, so two small allreduces do. Q is kept: next time the power iteration
goes on from there. A rank keeps what its own part of Q could not say, (1 - P P^T) M_i, and adds it the next time; over
many steps all that was meant arrives. (The original keeps M_i less everybody's mean: then residuals wander apart, and
cancel each other only as long as no phone leaves.) The first steps, when gradients turn fastest, are sent in full.

What a rank owes arrives late, and that costs accuracy: sixteen directions as fp16 cost less of it than eight as fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm import Collective
from phone_agent.comm.residuals import give_back
from phone_agent.comm.wire import FP16
from phone_agent.contract import rng
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool, aligned
from phone_agent.nn.packing import Packing
from phone_agent.nn.plan.buckets import learned_parts

Floats = NDArray[np.float32]

WIRE = FP16  # half as many bytes, so twice as many directions for as many
RANK = 16
RANKS = (1, 2, 4, 8, 16)  # those the core has
LEAST_GAIN = 2  # times smaller, or it travels as it is
IN_FULL = 10  # of so many steps of a run, the first
SKETCHES = 8  # stream of random numbers; see train.loop and data.sampling for others


@dataclass(frozen=True)
class Matrix:
    """Where one lies in the packed gradients: (all else, channels out) is how they are stored."""

    offset: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


def steps_in_full(steps: int) -> int:
    """Of a run's."""
    return steps // IN_FULL


class PowerSgd:
    """Memory: a residual as long as the gradients, and two thin ones a matrix. All ranks end with the same bits.

    `in_full`: the last step before anything is left out, whether or not something was summed in each."""

    def __init__(
        self, collective: Collective, packing: Packing, rank: int = RANK, seed: int = 0, *, in_full: int = 0
    ) -> None:
        if rank not in RANKS:
            raise AgentError(
                f"PowerSGD of rank {rank}: choose {', '.join(map(str, RANKS))}", code=ErrorCode.BAD_REQUEST
            )
        self._collective, self._packing, self._rank, self._seed = collective, packing, rank, seed
        self._in_full = in_full
        self._pool = ThreadPool(1)
        self._parts: dict[tuple[int, int, int], _Part] = {}
        self._room: _Room | None = None

    def remember(self, gradients: Floats) -> dict[str, Floats]:
        del gradients  # it knows their packing
        self._room = _Room(self._packing, self._rank)
        room = self._room
        return {"residuals": room.residuals, "directions": room.directions, "draws": room.draws}

    def reduce(self, gradients: Floats, part: slice, step: int) -> None:
        first, last, _ = part.indices(gradients.size)
        place = (gradients.ctypes.data, first, last)
        if place not in self._parts:
            cut = split(self._packing, first, last, self._rank)
            room = self._room or _Room(self._packing, self._rank)
            self._parts[place] = _Part(self._pool, gradients, cut, self._rank, self._seed, room)
        if step <= self._in_full:
            self._collective.allreduce(gradients[first:last])
        else:
            self._parts[place].reduce(self._collective)


class LonePowerSgd(PowerSgd):
    """Of one rank: nothing travels, so nothing is left out, and what was comes back. Directions stay as they are, for
    when there are others again."""

    def reduce(self, gradients: Floats, part: slice, step: int) -> None:
        del step
        if self._room is not None:
            give_back(self._room.residuals[part], gradients[part])


@dataclass(frozen=True)
class Split:
    """The matrices of a part that are worth it, and the runs of everything else."""

    matrices: list[Matrix]
    rest: list[slice]

    def lengths(self, rank: int) -> tuple[int, int]:
        """Numbers in both messages: every matrix's left factors and all that is no matrix; the right factors."""
        rows, columns = sum(matrix.rows for matrix in self.matrices), sum(matrix.columns for matrix in self.matrices)
        return rank * rows + sum(run.stop - run.start for run in self.rest), rank * columns


class Factors:
    """What a step sums of a network's gradients: see `comm.load`. Whole parameters, and no step sent in full."""

    def __init__(self, packing: Packing, rank: int = RANK) -> None:
        self._packing, self._rank = packing, rank
        self._known: dict[int, list[list[int]]] = {}

    def messages(self, wire: str, bucket_bytes: int) -> list[int]:
        del wire
        return [size for part in self._parts(bucket_bytes) for size in part]

    def of_a_part(self, wire: str, bucket_bytes: int) -> list[int]:
        """The longest."""
        del wire
        return max(self._parts(bucket_bytes), key=sum)

    def of_the_last(self, wire: str, bucket_bytes: int) -> list[int]:
        del wire
        return self._parts(bucket_bytes)[-1]

    def _parts(self, bucket_bytes: int) -> list[list[int]]:
        """Bytes of each part's messages."""
        if bucket_bytes not in self._known:
            parts = learned_parts(self._packing, bucket_bytes)
            cuts = (split(self._packing, part.start, part.stop, self._rank) for part in parts)
            self._known[bucket_bytes] = [
                [WIRE.size(length) for length in cut.lengths(self._rank) if length] for cut in cuts
            ]
        return self._known[bucket_bytes]


def split(packing: Packing, first: int, last: int, rank: int) -> Split:
    matrices: list[Matrix] = []
    rest: list[slice] = []
    for offset, shape in ((slot.offset, slot.shape) for slot in packing.slots.values()):
        end = offset + prod(shape)
        if end <= first or offset >= last:
            continue
        if offset < first or end > last:
            raise AgentError(
                f"gradients {first} to {last} cut a parameter in two: hand over whole ones",
                code=ErrorCode.INTERNAL_ERROR,
            )
        matrix = Matrix(offset, prod(shape[:-1]), shape[-1])
        if LEAST_GAIN * rank * (matrix.rows + matrix.columns) <= matrix.size:
            matrices.append(matrix)
        elif rest and rest[-1].stop == offset:
            rest[-1] = slice(rest[-1].start, end)
        else:
            rest.append(slice(offset, end))
    return Split(matrices, rest)


class _Room:
    """What is kept from step to step, of all matrices: residuals where their gradients are, directions one after the
    other, and how often new ones were drawn."""

    def __init__(self, packing: Packing, rank: int) -> None:
        matrices = [
            matrix
            for slot in packing.slots.values()
            for matrix in split(packing, slot.offset, slot.offset + prod(slot.shape), rank).matrices
        ]
        self.residuals = aligned(packing.size)
        self.directions = aligned(rank * sum(matrix.columns for matrix in matrices))
        starts = accumulate((rank * matrix.columns for matrix in matrices), initial=0)
        self._starts = dict(zip((matrix.offset for matrix in matrices), starts, strict=False))
        self.draws = np.zeros(max(1, len(matrices)), np.float32)

    def draws_of(self, matrices: Sequence[Matrix]) -> Floats:
        """One number, the first matrix's; without matrices, nobody's."""
        if not matrices:
            return np.zeros(1, np.float32)
        number = list(self._starts).index(matrices[0].offset)
        return self.draws[number : number + 1]

    def of(self, matrices: Sequence[Matrix], rank: int) -> Floats:
        """Directions of matrices in a row."""
        start = self._starts[matrices[0].offset] if matrices else 0
        return self.directions[start : start + rank * sum(matrix.columns for matrix in matrices)]


class _Part:
    """What of the gradients is summed at once: every matrix's left factors and all that is no matrix in one message,
    the right factors in a second one."""

    def __init__(  # noqa: PLR0917 - what, where and how
        self, pool: ThreadPool, gradients: Floats, cut: Split, rank: int, seed: int, room: _Room
    ) -> None:
        self._pool, self._gradients, self._rest = pool, gradients, cut.rest
        matrices = cut.matrices
        self._left_size = rank * sum(matrix.rows for matrix in matrices)
        message, own = cut.lengths(rank)
        self._message, self._own = aligned(message), aligned(own)
        self._right = room.of(matrices, rank)
        self._residual = room.residuals
        self._directions = list(_rows(self._right, [matrix.columns for matrix in matrices], rank))
        self._draws = room.draws_of(matrices)
        self._key = (seed, SKETCHES, matrices[0].offset if matrices else 0)
        self._renew()
        self._count = len(matrices)
        self._program = self._steps(matrices, rank)

    def _steps(self, matrices: Sequence[Matrix], rank: int) -> Program:
        """Sketches, then orthonormalising and projecting, then restoring."""
        sums, own = [], []
        left = right = 0
        for matrix in matrices:
            common = {
                "matrix": _at(self._gradients, matrix.offset),
                "residual": _at(self._residual, matrix.offset),
                "left": _at(self._message, left),
                "rows": matrix.rows,
                "columns": matrix.columns,
                "rank": rank,
            }
            mine = _at(self._own, right)
            sums.append(ops.LowRank(right=_at(self._right, right), local_right=mine, **common))
            own.append(ops.LowRank(right=mine, **common))
            left, right = left + rank * matrix.rows, right + rank * matrix.columns
        return Program.of(
            [
                *((ops.Kind.LOWRANK_SKETCH, op) for op in sums),
                *((ops.Kind.LOWRANK_ORTHONORMALIZE, op) for op in own),
                *((ops.Kind.LOWRANK_PROJECT, op) for op in own),
                *((ops.Kind.LOWRANK_RECONSTRUCT, op) for op in sums),
            ]
        )

    def reduce(self, collective: Collective) -> None:
        count = self._count
        self._pool.run(self._program, 0, count)
        for run, copy in self._copies():
            copy[...] = self._gradients[run]
        collective.allreduce(self._message)
        for run, copy in self._copies():
            self._gradients[run] = copy
        self._pool.run(self._program, count, 3 * count)
        np.copyto(self._right, self._own)
        if count:
            collective.allreduce(self._right)
        self._pool.run(self._program, 3 * count, 4 * count)
        self._renew()

    def _copies(self) -> Iterator[tuple[slice, Floats]]:
        start = self._left_size
        for run in self._rest:
            end = start + run.stop - run.start
            yield run, self._message[start:end]
            start = end

    def _renew(self) -> None:
        """A direction that became 0 would stay so; and all are at first. Everybody has the same, and draws the same."""
        for direction in self._directions:
            if not direction.any():
                self._draws += 1
                direction[...] = 2 * rng.uniform((*self._key, int(self._draws[0])), len(direction)) - 1


def _rows(buffer: Floats, lengths: Sequence[int], rank: int) -> Iterator[Floats]:
    start = 0
    for length in (length for length in lengths for _ in range(rank)):
        yield buffer[start : start + length]
        start += length


def _at(array: NDArray[Any], index: int) -> int:
    address: int = array.ctypes.data
    return address + index * array.itemsize
