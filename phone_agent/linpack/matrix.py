"""The system of equations: numbers between -1/2 and 1/2 that follow from a seed and their place, on any phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.rng import uniform_at
from phone_agent.core.thread_pool import aligned
from phone_agent.linpack.layout import Dealt, Grid

CHUNK = 1 << 18  # numbers made at a time: random numbers take several times their own memory


@dataclass(frozen=True)
class System:
    """n equations; the right-hand side is column n."""

    n: int
    block: int
    grid: Grid
    seed: int = 1

    @property
    def rows(self) -> Dealt:
        return Dealt(self.n, self.block, self.grid.rows)

    @property
    def columns(self) -> Dealt:
        return Dealt(self.n + 1, self.block, self.grid.columns)

    @property
    def flops(self) -> float:
        """As the benchmark counts them, whatever was done."""
        return 2 / 3 * self.n**3 + 3 / 2 * self.n**2

    def shape(self, row: int, column: int) -> tuple[int, int]:
        """Of what that process of the grid holds."""
        return self.rows.count(row), self.columns.count(column)

    def made(self, row: int, column: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """What that process holds, some rows at a time."""
        rows, columns = self.rows.held(row), self.columns.held(column).astype(np.uint64)
        step = max(1, CHUNK // max(1, len(columns)))
        for start in range(0, len(rows), step):
            part = slice(start, min(start + step, len(rows)))
            places = rows[part, None].astype(np.uint64) * np.uint64(self.n + 1) + columns
            yield part, uniform_at((self.seed,), places) - 0.5

    def part(self, row: int, column: int) -> NDArray[np.float64]:
        shape = self.shape(row, column)
        whole = aligned(shape[0] * shape[1], np.float64).reshape(shape)
        for part, numbers in self.made(row, column):
            whole[part] = numbers
        return whole
