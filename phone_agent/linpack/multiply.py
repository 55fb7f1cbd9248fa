"""The core's product of matrices in double precision, for views of numpy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.core.team import Program, Team, workspace_bytes

Doubles = NDArray[np.float64]


class Multiplier:
    """For matrices up to (depth, rows), (depth, columns)."""

    def __init__(self, threads: int, rows: int, columns: int, depth: int, isa: str | None = None) -> None:
        largest = ops.Dgemm(rows=rows, columns=columns, depth=depth)
        self.team = Team(threads, isa, workspace_bytes(threads, [(Kind.DGEMM, largest)], isa))

    def subtract(self, c: Doubles, a: Doubles, b: Doubles) -> None:
        """c -= a^T b."""
        self._run(c, a, b, -1.0, accumulate=True)

    def store(self, c: Doubles, a: Doubles, b: Doubles) -> None:
        """c = a^T b."""
        self._run(c, a, b, 1.0, accumulate=False)

    def _run(self, c: Doubles, a: Doubles, b: Doubles, alpha: float, *, accumulate: bool) -> None:
        if not c.size:
            return
        op = ops.Dgemm(
            a=a.ctypes.data, b=b.ctypes.data, c=c.ctypes.data, alpha=alpha,
            rows=c.shape[0], columns=c.shape[1], depth=a.shape[0], lda=_apart(a), ldb=_apart(b), ldc=_apart(c),
            accumulate=int(accumulate),
        )  # fmt: skip
        self.team.run(Program.of([(Kind.DGEMM, op)]))

    def close(self) -> None:
        self.team.close()


def _apart(matrix: Doubles) -> int:
    """Doubles between two rows; the numbers of a row lie side by side."""
    return matrix.strides[0] // matrix.itemsize
