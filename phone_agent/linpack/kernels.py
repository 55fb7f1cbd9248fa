"""Double-precision kernels of the core, applied to numpy views."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.core.thread_pool import Program, ThreadPool, workspace_bytes

Doubles = NDArray[np.float64]


class Kernels:
    """Supports products up to (depth, rows)^T (depth, columns) and panels of up to `rows` rows."""

    def __init__(self, threads: int, rows: int, columns: int, depth: int, isa: str | None = None) -> None:
        largest = (
            (Kind.DGEMM, ops.Dgemm(rows=rows, columns=columns, depth=depth)),
            (Kind.ELIMINATE, ops.Eliminate(rows=rows)),
        )
        self.pool = ThreadPool(threads, isa, workspace_bytes(threads, largest, isa))
        self._next_pivot = np.zeros(1, np.int64)
        self._elimination = ops.Eliminate(next_pivot=self._next_pivot.ctypes.data)  # reused for every column
        self._eliminate = Program.of([(Kind.ELIMINATE, self._elimination)])

    def subtract(self, c: Doubles, a: Doubles, b: Doubles) -> None:
        """c -= a^T b."""
        self._multiply(c, a, b, -1.0, accumulate=True)

    def store(self, c: Doubles, a: Doubles, b: Doubles) -> None:
        """c = a^T b."""
        self._multiply(c, a, b, 1.0, accumulate=False)

    def _multiply(self, c: Doubles, a: Doubles, b: Doubles, alpha: float, *, accumulate: bool) -> None:
        if not c.size:
            return
        op = ops.Dgemm(
            a=a.ctypes.data, b=b.ctypes.data, c=c.ctypes.data, alpha=alpha,
            rows=c.shape[0], columns=c.shape[1], depth=a.shape[0], lda=_ld(a), ldb=_ld(b), ldc=_ld(c),
            accumulate=int(accumulate),
        )  # fmt: skip
        self.pool.run(Program.of([(Kind.DGEMM, op)]))

    def eliminate(self, columns: Doubles, pivot: float, factors: Doubles) -> int:
        """Divides the first column by the pivot and eliminates it from the others; each column is a row of the array.
        Returns the index of the next pivot: the largest value of the second column."""
        op = self._elimination
        op.column, op.factors, op.pivot = columns.ctypes.data, factors.ctypes.data, pivot
        op.rows, op.ld, op.trailing_columns = columns.shape[1], _ld(columns), len(factors)
        self.pool.run(self._eliminate)
        return int(self._next_pivot[0])

    def close(self) -> None:
        self.pool.close()


def _ld(matrix: Doubles) -> int:
    """The distance between rows, in doubles; each row is contiguous."""
    return matrix.strides[0] // matrix.itemsize
