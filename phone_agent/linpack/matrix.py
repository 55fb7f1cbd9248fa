"""The linear system. Each value, between -1/2 and 1/2, depends only on the seed and its position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.rng import uniform_at
from phone_agent.core.thread_pool import aligned
from phone_agent.linpack.layout import BlockCyclic, Grid

CHUNK = 1 << 18  # values generated at a time: generating takes several times their size


@dataclass(frozen=True)
class System:
    """n equations; column n is the right-hand side."""

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
