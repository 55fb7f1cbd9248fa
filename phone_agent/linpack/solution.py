"""Back substitution: solves the triangular system, last block first. Then the solution is checked."""

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


def back_substitute(system: System, process_grid: ProcessGrid, part: Doubles) -> Doubles:
    """Returns the solution on every process. `rhs`: the remaining rhs-hand side, split over each row of processes."""
    solution, rhs = np.zeros(system.n), np.zeros(len(part))
    if process_grid.column == system.columns.owner(system.n):
        rhs += part[:, -1]
    for start in reversed(range(0, system.n, system.block)):
        values = _solve_block(system, process_grid, part, rhs, start)
        if values is not None:
            solution[start : start + len(values)] = values
    process_grid.row_comm.allreduce_sum(solution)  # one column of the grid has each block
    return solution


def _solve_block(system: System, process_grid: ProcessGrid, part: Doubles, rhs: Doubles, start: int) -> Doubles | None:
    """The solution of one block, on the grid column that owns it; None elsewhere."""
    width = min(system.block, system.n - start)
    owner_row, owner_column = system.rows.owner(start), system.columns.owner(start)
    above, first = system.rows.count(process_grid.row, before=start), system.columns.local(start)
    values = np.empty(width)
    if process_grid.row == owner_row:
        values[:] = rhs[above : above + width]
        process_grid.row_comm.allreduce_sum(values)
    if process_grid.column != owner_column:
        return None
    if process_grid.row == owner_row:
        _solve_upper(part[above : above + width, first : first + width], values)
    process_grid.column_comm.broadcast(values, owner_row).wait()
    rhs[:above] -= part[:above, first : first + width] @ values
    return values


def _solve_upper(triangle: Doubles, rhs: Doubles) -> None:
    """rhs = triangle^-1 rhs; values below the diagonal are ignored."""
    for i in reversed(range(len(rhs))):
        rhs[i] = (rhs[i] - triangle[i, i + 1 :] @ rhs[i + 1 :]) / triangle[i, i]


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
