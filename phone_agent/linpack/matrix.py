"""The linear system, its block-cyclic layout over the process grid, and the memory that it takes on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, BadRequestError, ErrorCode
from phone_agent.contract.rng import uniform_at
from phone_agent.contract.sizes import format_size
from phone_agent.core.thread_pool import aligned

DEFAULT_BLOCK = 128


@dataclass(frozen=True)
class Grid:
    """Row-major: neighbors in a row of the grid are neighbors in the hostfile."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def coordinates(self, rank: int) -> tuple[int, int]:
        return divmod(rank, self.columns)

    @classmethod
    def nearly_square(cls, size: int) -> Grid:
        """At most as many rows as columns: the pivot search needs one exchange between rows per matrix column."""
        rows = next(rows for rows in range(isqrt(size), 0, -1) if size % rows == 0)
        return cls(rows, size // rows)

    @classmethod
    def parse(cls, text: str, size: int) -> Grid:
        match = re.fullmatch(r"([1-9]\d{0,5})[xX]([1-9]\d{0,5})", text)
        if match is None:
            raise BadRequestError(f"'{text}' is not a grid; use the form ROWSxCOLUMNS, for example 2x3")
        grid = cls(int(match[1]), int(match[2]))
        if grid.size != size:
            fit = ", ".join(f"{rows}x{size // rows}" for rows in range(1, size + 1) if size % rows == 0)
            raise BadRequestError(
                f"a {grid} grid needs {grid.size} phones, but there are {size}; possible grids: {fit}"
            )
        return grid


@dataclass(frozen=True)
class BlockCyclic:
    """`size` rows (or columns) in blocks of `block`, distributed over `parts` processes in turn."""

    size: int
    block: int
    parts: int

    def owner(self, index: int) -> int:
        return index // self.block % self.parts

    def count(self, part: int, before: int | None = None) -> int:
        """How many indices below `before` the part owns; equally, the local index of its next one."""
        blocks, rest = divmod(self.size if before is None else before, self.block)
        rounds, extra = divmod(blocks, self.parts)
        return rounds * self.block + (self.block if part < extra else rest if part == extra else 0)

    def local(self, index: int) -> int:
        """The index on its owner."""
        return index // (self.block * self.parts) * self.block + index % self.block

    def global_indices(self, part: int) -> NDArray[np.int64]:
        """The global indices that the part owns, in local order."""
        own = np.arange(self.count(part))
        return (own // self.block * self.parts + part) * self.block + own % self.block


CHUNK = 1 << 18  # values generated at a time: generating takes several times their size


@dataclass(frozen=True)
class System:
    """n equations; column n is the right-hand side. Each value, between -1/2 and 1/2, depends only on the seed and its
    position."""

    n: int
    block: int
    grid: Grid
    seed: int = 1

    @property
    def rows(self) -> BlockCyclic:
        return BlockCyclic(self.n, self.block, self.grid.rows)

    @property
    def columns(self) -> BlockCyclic:
        return BlockCyclic(self.n + 1, self.block, self.grid.columns)

    @property
    def flops(self) -> float:
        """As HPL defines it, regardless of the algorithm."""
        return 2 / 3 * self.n**3 + 3 / 2 * self.n**2

    def shape(self, row: int, column: int) -> tuple[int, int]:
        """Of the local matrix of that process."""
        return self.rows.count(row), self.columns.count(column)

    def generate(self, row: int, column: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """The local matrix of that process, some rows at a time."""
        rows, columns = self.rows.global_indices(row), self.columns.global_indices(column).astype(np.uint64)
        step = max(1, CHUNK // max(1, len(columns)))
        for start in range(0, len(rows), step):
            part = slice(start, min(start + step, len(rows)))
            positions = rows[part, None].astype(np.uint64) * np.uint64(self.n + 1) + columns
            yield part, uniform_at((self.seed,), positions) - 0.5

    def local_matrix(self, row: int, column: int) -> NDArray[np.float64]:
        shape = self.shape(row, column)
        matrix = aligned(shape[0] * shape[1], np.float64).reshape(shape)
        for rows, values in self.generate(row, column):
            matrix[rows] = values
        return matrix


DOUBLE_BYTES = 8
PANELS = 2 + 1  # the current one, the next one, and the current one packed for the product
PIVOT_ROWS = 5  # gathered, reordered, sent, displaced, received
PROCESS_BYTES = 80_000_000  # Python, numpy, MPI
PACKED_COLUMNS = 2048  # of the right operand of the product
GENERATE_BYTES = 6 * DOUBLE_BYTES * CHUNK  # temporary, while random values are generated
DEFAULT_N = 2048  # for one phone: a matrix of 34 MB


class TooLargeError(AgentError):
    """The system does not fit the memory of the phones."""

    code = ErrorCode.OUT_OF_MEMORY


def required_bytes(n: int, block: int, grid: Grid) -> int:
    """On grid position (0, 0), which needs the most."""
    rows, columns = System(n, block, grid).shape(0, 0)
    block = min(block, n)
    buffers = PANELS * block * (rows + block) + PIVOT_ROWS * block * columns + block * PACKED_COLUMNS
    return PROCESS_BYTES + GENERATE_BYTES + DOUBLE_BYTES * (rows * columns + buffers)


def largest_n(memory: int, block: int, grid: Grid) -> int:
    """The largest n that fits `memory` bytes per phone; 0 if none does."""
    fits, too_many = 0, 1
    while required_bytes(too_many, block, grid) <= memory:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if required_bytes(middle, block, grid) <= memory else (fits, middle)
    return fits


def default_n(block: int, grid: Grid, memory: int | None) -> int:
    """Constant matrix size per phone (weak scaling), limited by the memory available."""
    n = round(DEFAULT_N * sqrt(grid.size))
    return n if memory is None else min(n, largest_n(memory, block, grid))


def check_fits(n: int, block: int, grid: Grid, memory: int, phone: str) -> None:
    if (required := required_bytes(n, block, grid)) > memory:
        raise TooLargeError(
            f"n = {n} needs {format_size(required)} per phone, but {phone} has {format_size(memory)} free; "
            f"the largest n that fits is {largest_n(memory, block, grid)}"
        )
