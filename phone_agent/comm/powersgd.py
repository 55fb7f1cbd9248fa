"""PowerSGD gradient compression: a gradient matrix is sent as two thin factors (Vogels et al., 2019).

Let M be the sum over all ranks of gradient plus residual. P = M Q^T, orthonormalized; Q = P^T M; every rank gets P Q.
Both factors are sums of what each rank computes alone, so two small allreduces are enough. Q is kept, so the next step
continues the power iteration. A rank keeps what its own part of Q could not express, (1 - P P^T) M_i, as its residual
and adds it in the next step (error feedback). The paper keeps M_i minus the mean over ranks instead: those residuals
drift apart and cancel out only as long as no phone leaves. The first steps, when gradients change fastest, are sent
uncompressed.

Residuals arrive late, which costs accuracy: for the same bytes, rank 16 in fp16 costs less than rank 8 in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.collective import Collective
from phone_agent.comm.wire import FP16, flush_residual
from phone_agent.contract import rng
from phone_agent.contract.errors import BadRequestError, InternalError
from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool, aligned
from phone_agent.nn.packing import Packing
from phone_agent.nn.plan.buckets import trainable_bucket_slices

Floats = NDArray[np.float32]

WIRE = FP16  # half the bytes of fp32, so twice the rank for the same bytes
RANK = 16
SUPPORTED_RANKS = (1, 2, 4, 8, 16)  # by the core
MIN_COMPRESSION = 2  # a matrix that shrinks by less is sent uncompressed
UNCOMPRESSED_DIVISOR = 10  # one in this many steps of a run is sent uncompressed, at the start
RNG_STREAM = 8  # see train.loop and data.sampling for the other streams


@dataclass(frozen=True)
class Matrix:
    """A matrix in the packed gradients: (all other dimensions, output channels), as parameters are stored."""

    offset: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


def uncompressed_steps(steps: int) -> int:
    """How many steps at the start of a run are sent uncompressed."""
    return steps // UNCOMPRESSED_DIVISOR


class PowerSgd:
    """Memory: a residual as long as the gradients, and two thin factors per matrix. All ranks end with the same bits.

    `uncompressed`: the last step that is sent uncompressed, whether or not each step was reduced.

    `single_rank`: nothing is sent, so nothing is lost, and residuals of earlier steps with several ranks are added to
    the next gradients. The factors stay as they are, for when other ranks return.
    """

    def __init__(
        self,
        collective: Collective,
        packing: Packing,
        rank: int = RANK,
        seed: int = 0,
        *,
        uncompressed: int = 0,
        single_rank: bool = False,
    ) -> None:
        if rank not in SUPPORTED_RANKS:
            raise BadRequestError(
                f"PowerSGD rank {rank} is not supported; choose from: {', '.join(map(str, SUPPORTED_RANKS))}"
            )
        self._collective, self._packing, self._rank, self._seed = collective, packing, rank, seed
        self._uncompressed, self._single_rank = uncompressed, single_rank
        self._pool = ThreadPool(1)
        self._parts: dict[tuple[int, int, int], _Part] = {}
        self._state: _PersistentState | None = None

    def persistent_buffers(self, gradients: Floats) -> dict[str, Floats]:
        del gradients  # their packing is known
        self._state = _PersistentState(self._packing, self._rank)
        state = self._state
        return {"residuals": state.residuals, "directions": state.directions, "draws": state.draws}

    def reduce(self, gradients: Floats, part: slice, step: int) -> None:
        if self._single_rank:
            if self._state is not None:
                flush_residual(self._state.residuals[part], gradients[part])
            return
        first, last, _ = part.indices(gradients.size)
        key = (gradients.ctypes.data, first, last)
        if key not in self._parts:
            split = split_matrices(self._packing, first, last, self._rank)
            state = self._state or _PersistentState(self._packing, self._rank)
            self._parts[key] = _Part(self._pool, gradients, split, self._rank, self._seed, state)
        if step <= self._uncompressed:
            self._collective.allreduce(gradients[first:last])
        else:
            self._parts[key].reduce(self._collective)


@dataclass(frozen=True)
class MatrixSplit:
    """The matrices of a bucket that are worth compressing, and the runs of everything else."""

    matrices: list[Matrix]
    rest: list[slice]

    def lengths(self, rank: int) -> tuple[int, int]:
        """Floats in both messages: the left factors and everything uncompressed; the right factors."""
        rows, columns = sum(matrix.rows for matrix in self.matrices), sum(matrix.columns for matrix in self.matrices)
        return rank * rows + sum(run.stop - run.start for run in self.rest), rank * columns


class PowerSgdMessageSizes:
    """Message sizes (see comm.autotune) of compressed steps."""

    def __init__(self, packing: Packing, rank: int = RANK) -> None:
        self._packing, self._rank = packing, rank
        self._cache: dict[int, list[list[int]]] = {}

    def step_messages(self, wire: str, bucket_bytes: int) -> list[int]:
        del wire
        return [size for bucket in self._buckets(bucket_bytes) for size in bucket]

    def bucket_messages(self, wire: str, bucket_bytes: int) -> list[int]:
        """Of the largest bucket."""
        del wire
        return max(self._buckets(bucket_bytes), key=sum)

    def last_bucket_messages(self, wire: str, bucket_bytes: int) -> list[int]:
        del wire
        return self._buckets(bucket_bytes)[-1]

    def _buckets(self, bucket_bytes: int) -> list[list[int]]:
        """Bytes of the messages of each bucket."""
        if bucket_bytes not in self._cache:
            buckets = trainable_bucket_slices(self._packing, bucket_bytes)
            splits = (split_matrices(self._packing, bucket.start, bucket.stop, self._rank) for bucket in buckets)
            self._cache[bucket_bytes] = [
                [WIRE.size(length) for length in split.lengths(self._rank) if length] for split in splits
            ]
        return self._cache[bucket_bytes]


def split_matrices(packing: Packing, first: int, last: int, rank: int) -> MatrixSplit:
    """The matrices in gradients[first:last], which must hold whole parameters."""
    matrices: list[Matrix] = []
    rest: list[slice] = []
    for slot in packing.slots.values():
        offset, end, shape = slot.offset, slot.end, slot.shape
        if end <= first or offset >= last:
            continue
        if offset < first or end > last:
            raise InternalError(f"gradients {first} to {last} split a parameter: buckets must hold whole parameters")
        matrix = Matrix(offset, prod(shape[:-1]), shape[-1])
        if MIN_COMPRESSION * rank * (matrix.rows + matrix.columns) <= matrix.size:
            matrices.append(matrix)
        elif rest and rest[-1].stop == offset:
            rest[-1] = slice(rest[-1].start, end)
        else:
            rest.append(slice(offset, end))
    return MatrixSplit(matrices, rest)


class _PersistentState:
    """What is kept from step to step, for all matrices.

    Residuals, in the layout of the gradients; directions (the right factors), one after the other; and how often new
    directions were drawn at random.
    """

    def __init__(self, packing: Packing, rank: int) -> None:
        matrices = [
            matrix
            for slot in packing.slots.values()
            for matrix in split_matrices(packing, slot.offset, slot.end, rank).matrices
        ]
        self.residuals = aligned(packing.size)
        self.directions = aligned(rank * sum(matrix.columns for matrix in matrices))
        starts = accumulate((rank * matrix.columns for matrix in matrices), initial=0)
        self._starts = dict(zip((matrix.offset for matrix in matrices), starts, strict=False))
        self.draws = np.zeros(max(1, len(matrices)), np.float32)

    def draws_of(self, matrices: Sequence[Matrix]) -> Floats:
        """The counter of the first matrix; a counter of its own if there are no matrices."""
        if not matrices:
            return np.zeros(1, np.float32)
        index = list(self._starts).index(matrices[0].offset)
        return self.draws[index : index + 1]

    def directions_of(self, matrices: Sequence[Matrix], rank: int) -> Floats:
        """The directions of consecutive matrices."""
        start = self._starts[matrices[0].offset] if matrices else 0
        return self.directions[start : start + rank * sum(matrix.columns for matrix in matrices)]


class _Part:
    """One bucket, reduced in two messages: the left factors and everything uncompressed; then the right factors."""

    def __init__(  # noqa: PLR0917 - what, where and how
        self, pool: ThreadPool, gradients: Floats, split: MatrixSplit, rank: int, seed: int, state: _PersistentState
    ) -> None:
        self._pool, self._gradients, self._rest = pool, gradients, split.rest
        matrices = split.matrices
        self._left_size = rank * sum(matrix.rows for matrix in matrices)
        message, own = split.lengths(rank)
        self._message, self._own = aligned(message), aligned(own)
        self._right = state.directions_of(matrices, rank)
        self._residual = state.residuals
        self._directions = list(_rows(self._right, [matrix.columns for matrix in matrices], rank))
        self._draws = state.draws_of(matrices)
        self._key = (seed, RNG_STREAM, matrices[0].offset if matrices else 0)
        self._redraw_zero_directions()
        self._count = len(matrices)
        self._program = self._compile(matrices, rank)

    def _compile(self, matrices: Sequence[Matrix], rank: int) -> Program:
        """Sketch; orthonormalize and project; reconstruct."""
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
            own_right = _at(self._own, right)
            sums.append(ops.LowRank(right=_at(self._right, right), local_right=own_right, **common))
            own.append(ops.LowRank(right=own_right, **common))
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
        self._redraw_zero_directions()

    def _copies(self) -> Iterator[tuple[slice, Floats]]:
        """Each uncompressed run of the gradients, and its place in the first message."""
        start = self._left_size
        for run in self._rest:
            end = start + run.stop - run.start
            yield run, self._message[start:end]
            start = end

    def _redraw_zero_directions(self) -> None:
        """Directions are zero at first, and one that becomes zero would stay so. All ranks draw the same."""
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
