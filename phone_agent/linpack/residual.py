"""Is the answer right? The benchmark's own rule, with the matrix made once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.linpack.matrix import System

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import Mesh  # starts MPI

Doubles = NDArray[np.float64]
MOST = 16.0
EPSILON = 2.0**-53  # the largest relative error of rounding to double precision


def residual(system: System, mesh: Mesh, answer: Doubles) -> float:
    """||A x - b|| / (eps (||A|| ||x|| + ||b||) n), all in the largest-number norm; less than MOST is right."""
    off, sizes, right = (np.zeros(system.rows.count(mesh.row)) for _ in range(3))
    held = system.columns.held(mesh.column)
    inside = held < system.n
    factors = answer[held[inside]]
    for part, numbers in system.made(mesh.row, mesh.column):
        matrix = numbers[:, inside]
        off[part] = matrix @ factors
        sizes[part] = np.abs(matrix).sum(axis=1)
        if not inside.all():
            right[part] = numbers[:, -1]
    rows = np.concatenate((off - right, sizes, right))
    mesh.across.add_up(rows)
    worst = np.abs(rows.reshape(3, -1)).max(axis=1, initial=0.0)
    error, matrix_norm, right_norm = mesh.down.gather(worst).max(axis=0)
    return float(error / (EPSILON * (matrix_norm * np.abs(answer).max() + right_norm) * system.n))
