"""A panel: the columns of one block, factored with partial pivoting by the processes of one column of the grid.

It lies column by column, so that what is done to a column goes through memory in a row. `low` has the rows of this
process from the panel's first on; `top` has the pivot rows, the same on every process: factored, it is L and U of the
diagonal block. One buffer holds all, and is what travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core.thread_pool import aligned
from phone_agent.linpack.kernels import Kernels

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import Line  # starts MPI

Doubles = NDArray[np.float64]
LEAF = 8  # columns eliminated one by one; wider parts are halves, one updated by the other


class SingularError(AgentError):
    """A column without a number to divide by."""

    code = ErrorCode.SINGULAR_MATRIX


class Panel:
    def __init__(self, buffer: Doubles, start: int, width: int, rows: int) -> None:
        head = width * (width + 1)
        self.start, self.width = start, width
        self.buffer = buffer[: head + width * rows]
        self.pivots = self.buffer[:width]  # which row became row start + i, as doubles
        self.top = self.buffer[width:head].reshape(width, width)
        self.low = self.buffer[head:].reshape(width, rows)

    @staticmethod
    def room(width: int, rows: int) -> Doubles:
        return aligned(width * (width + 1 + rows), np.float64)

    def swaps(self) -> list[int]:
        return [int(pivot) for pivot in self.pivots]


class Factoring:
    """`rows`: the panel's rows on this process, by their number in the matrix. `owner`: who has the diagonal block."""

    def __init__(self, panel: Panel, rows: NDArray[np.int64], down: Line, kernels: Kernels, *, owner: int) -> None:
        self._panel, self._rows, self._down, self._kernels = panel, rows, down, kernels
        self._owner = owner
        self._is_owner = down.place == owner

    def run(self) -> None:
        panel = self._panel
        self._columns(0, panel.width)
        if self._is_owner:
            panel.low[:, : panel.width] = panel.top.T

    def _columns(self, first: int, last: int) -> None:
        if last - first <= LEAF:
            best: int | None = None
            for column in range(first, last):
                best = self._column(column, last, best)
            return
        middle = (first + last) // 2
        self._columns(first, middle)
        self._update(first, middle, last)
        self._columns(middle, last)

    def _column(self, j: int, last: int, best: int | None) -> int | None:
        """`best`: this process's largest number of the column, where that is known; returns that of the next."""
        panel = self._panel
        pivot = self._swap(j, best)
        below = panel.low[j:last, self._left(j + 1) :]
        found = self._kernels.eliminate(below, pivot, panel.top[j, j + 1 : last])
        return found if below.shape[1] else None

    def _left(self, done: int) -> int:
        """Where the rows begin that are not yet pivots."""
        return done if self._is_owner else 0

    def _swap(self, j: int, best: int | None) -> float:
        """The largest number of the column, and its row in the place of row j."""
        panel, low = self._panel, self._panel.low
        size, found, pivot, current = self._agree(j, *self._candidate(j, best))
        if not size > 0:  # nor may it be no number at all
            raise SingularError(f"column {panel.start + j} has no pivot: the matrix is singular")
        panel.pivots[j], panel.top[j] = found, pivot
        here = int(np.searchsorted(self._rows, found))
        if here < len(self._rows) and self._rows[here] == found:
            low[:, here] = current
        if self._is_owner:
            low[:, j] = pivot
        return float(panel.top[j, j])

    def _candidate(self, j: int, best: int | None) -> tuple[float, int, Doubles]:
        """Of this process: how large, which row of the matrix, and that row."""
        begin, low = self._left(j), self._panel.low
        if begin == low.shape[1]:
            return -1.0, 0, np.zeros(self._panel.width)
        if best is None:
            best = int(np.abs(low[j, begin:]).argmax())
        return abs(float(low[j, begin + best])), int(self._rows[begin + best]), low[:, begin + best]

    def _agree(self, j: int, size: float, row: int, numbers: Doubles) -> tuple[float, int, Doubles, Doubles]:
        """The best of all processes' candidates, its numbers, and those of row j."""
        current = self._panel.low[:, j] if self._is_owner else np.zeros(self._panel.width)
        if self._down.size == 1:
            return size, row, numbers.copy(), current.copy()
        told = self._down.gather(np.concatenate(([size, row], numbers, current)))
        best = max(range(len(told)), key=lambda place: (told[place, 0], -told[place, 1]))
        width = self._panel.width
        return float(told[best, 0]), int(told[best, 1]), told[best, 2 : 2 + width], told[self._owner, 2 + width :]

    def _update(self, first: int, middle: int, last: int) -> None:
        """Columns middle .. last by those before them."""
        top, low = self._panel.top, self._panel.low
        right: Doubles = np.linalg.solve(
            unit_lower(top[first:middle, first:middle]), top[first:middle, middle:last]
        ).astype(np.float64, copy=False)
        top[first:middle, middle:last] = right
        begin = self._left(middle)
        self._kernels.subtract(low[middle:last, begin:], right, low[first:middle, begin:])


def unit_lower(square: Doubles) -> Doubles:
    lower = np.tril(square, -1)
    np.fill_diagonal(lower, 1.0)
    return lower
