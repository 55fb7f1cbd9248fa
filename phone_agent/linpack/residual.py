"""The HPL acceptance test, with the matrix generated again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.linpack.matrix import System

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import ProcessGrid  # starts MPI

Doubles = NDArray[np.float64]
MAX_RESIDUAL = 16.0
EPSILON = 2.0**-53  # unit roundoff of double precision


def residual(system: System, process_grid: ProcessGrid, solution: Doubles) -> float:
    """||A x - b|| / (eps (||A|| ||x|| + ||b||) n), in the infinity norm; must be below MAX_RESIDUAL."""
    products, row_sums, right = (np.zeros(system.rows.count(process_grid.row)) for _ in range(3))
    global_indices = system.columns.global_indices(process_grid.column)
    in_matrix = global_indices < system.n
    x = solution[global_indices[in_matrix]]
    for part, values in system.generate(process_grid.row, process_grid.column):
        matrix = values[:, in_matrix]
        products[part] = matrix @ x
        row_sums[part] = np.abs(matrix).sum(axis=1)
        if not in_matrix.all():
            right[part] = values[:, -1]
    rows = np.concatenate((products - right, row_sums, right))
    process_grid.row_comm.allreduce_sum(rows)
    worst = np.abs(rows.reshape(3, -1)).max(axis=1, initial=0.0)
    error, matrix_norm, right_norm = process_grid.column_comm.gather(worst).max(axis=0)
    return float(error / (EPSILON * (matrix_norm * np.abs(solution).max() + right_norm) * system.n))
