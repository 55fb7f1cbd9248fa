"""A panel: one block column, factored with partial pivoting by the processes of one grid column.

Column-major, so that column operations access contiguous memory. `lower` has the rows of this process from the first
row of the panel on; `top` has the pivot rows, the same on every process: once factored, L and U of the diagonal block.
A single buffer holds everything and is broadcast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core.thread_pool import aligned
from phone_agent.linpack.kernels import Kernels

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import GridComm  # starts MPI

Doubles = NDArray[np.float64]
LEAF = 8  # columns eliminated one by one; wider ranges are split recursively


class SingularError(AgentError):
    """A column has no nonzero pivot."""

    code = ErrorCode.SINGULAR_MATRIX


class Panel:
    def __init__(self, buffer: Doubles, start: int, width: int, rows: int) -> None:
        head = width * (width + 1)
        self.start, self.width = start, width
        self.buffer = buffer[: head + width * rows]
        self.pivots = self.buffer[:width]  # the row swapped with row start + i, as doubles
        self.top = self.buffer[width:head].reshape(width, width)
        self.lower = self.buffer[head:].reshape(width, rows)

    @staticmethod
    def allocate(width: int, rows: int) -> Doubles:
        return aligned(width * (width + 1 + rows), np.float64)

    def pivot_rows(self) -> list[int]:
        return [int(pivot) for pivot in self.pivots]


class PanelFactorization:
    """`rows`: global indices of the panel rows on this process. `owner`: the process with the diagonal block."""

    def __init__(
        self, panel: Panel, rows: NDArray[np.int64], column_comm: GridComm, kernels: Kernels, *, owner: int
    ) -> None:
        self._panel, self._rows, self._column_comm, self._kernels = panel, rows, column_comm, kernels
        self._owner = owner
        self._is_owner = column_comm.rank == owner

    def run(self) -> None:
        panel = self._panel
        self._factor_columns(0, panel.width)
        if self._is_owner:
            panel.lower[:, : panel.width] = panel.top.T

    def _factor_columns(self, first: int, last: int) -> None:
        if last - first <= LEAF:
            best: int | None = None
            for column in range(first, last):
                best = self._factor_column(column, last, best)
            return
        middle = (first + last) // 2
        self._factor_columns(first, middle)
        self._update(first, middle, last)
        self._factor_columns(middle, last)

    def _factor_column(self, j: int, last: int, best: int | None) -> int | None:
        """`best`: local index of the largest value in the column, if known. Returns that of the next column."""
        panel = self._panel
        pivot = self._swap(j, best)
        below = panel.lower[j:last, self._first_remaining(j + 1) :]
        found = self._kernels.eliminate(below, pivot, panel.top[j, j + 1 : last])
        return found if below.shape[1] else None

    def _first_remaining(self, done: int) -> int:
        """Local index of the first row that is not a pivot row yet."""
        return done if self._is_owner else 0

    def _swap(self, j: int, best: int | None) -> float:
        """Swaps the row with the largest value in column j with row j; returns the pivot."""
        panel, lower = self._panel, self._panel.lower
        size, found, pivot, current = self._select_pivot(j, *self._candidate(j, best))
        if not size > 0:  # also catches NaN
            raise SingularError(f"column {panel.start + j} has no pivot: the matrix is singular")
        panel.pivots[j], panel.top[j] = found, pivot
        local = int(np.searchsorted(self._rows, found))
        if local < len(self._rows) and self._rows[local] == found:
            lower[:, local] = current
        if self._is_owner:
            lower[:, j] = pivot
        return float(panel.top[j, j])

    def _candidate(self, j: int, best: int | None) -> tuple[float, int, Doubles]:
        """The pivot candidate of this process: its size, its global row and the values of the row."""
        begin, lower = self._first_remaining(j), self._panel.lower
        if begin == lower.shape[1]:
            return -1.0, 0, np.zeros(self._panel.width)
        if best is None:
            best = int(np.abs(lower[j, begin:]).argmax())
        return abs(float(lower[j, begin + best])), int(self._rows[begin + best]), lower[:, begin + best]

    def _select_pivot(self, j: int, size: float, row: int, values: Doubles) -> tuple[float, int, Doubles, Doubles]:
        """The best candidate of all processes: size, row and values; and the values of row j."""
        current = self._panel.lower[:, j] if self._is_owner else np.zeros(self._panel.width)
        if self._column_comm.size == 1:
            return size, row, values.copy(), current.copy()
        candidates = self._column_comm.gather(np.concatenate(([size, row], values, current)))
        best = max(range(len(candidates)), key=lambda rank: (candidates[rank, 0], -candidates[rank, 1]))
        width = self._panel.width
        size, row = float(candidates[best, 0]), int(candidates[best, 1])
        return size, row, candidates[best, 2 : 2 + width], candidates[self._owner, 2 + width :]

    def _update(self, first: int, middle: int, last: int) -> None:
        """Updates columns middle .. last with columns first .. middle."""
        top, lower = self._panel.top, self._panel.lower
        right: Doubles = np.linalg.solve(
            unit_lower(top[first:middle, first:middle]), top[first:middle, middle:last]
        ).astype(np.float64, copy=False)
        top[first:middle, middle:last] = right
        begin = self._first_remaining(middle)
        self._kernels.subtract(lower[middle:last, begin:], right, lower[first:middle, begin:])


def unit_lower(square: Doubles) -> Doubles:
    lower = np.tril(square, -1)
    np.fill_diagonal(lower, 1.0)
    return lower
