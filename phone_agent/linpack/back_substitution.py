"""The answer from the triangle, last block first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.linpack.matrix import System

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import Mesh  # starts MPI

Doubles = NDArray[np.float64]


def substitute(system: System, mesh: Mesh, part: Doubles) -> Doubles:
    """The same on every process. `known`: what is left of a row's right-hand side, split over the row's processes."""
    answer, known = np.zeros(system.n), np.zeros(len(part))
    if mesh.column == system.columns.owner(system.n):
        known += part[:, -1]
    for start in reversed(range(0, system.n, system.block)):
        found = _block(system, mesh, part, known, start)
        if found is not None:
            answer[start : start + len(found)] = found
    mesh.across.add_up(answer)  # every block is known in one column of the grid
    return answer


def _block(system: System, mesh: Mesh, part: Doubles, known: Doubles, start: int) -> Doubles | None:
    """The answer's numbers of that block, in the column of the grid that has its columns."""
    width = min(system.block, system.n - start)
    owner, here = system.rows.owner(start), system.columns.owner(start)
    above, first = system.rows.count(mesh.row, before=start), system.columns.local(start)
    found = np.empty(width)
    if mesh.row == owner:
        found[:] = known[above : above + width]
        mesh.across.add_up(found)
    if mesh.column != here:
        return None
    if mesh.row == owner:
        _solve_upper(part[above : above + width, first : first + width], found)
    mesh.down.broadcast(found, owner).wait()
    known[:above] -= part[:above, first : first + width] @ found
    return found


def _solve_upper(triangle: Doubles, right: Doubles) -> None:
    """right = triangle^-1 right; what lies below the diagonal is not looked at."""
    for i in reversed(range(len(right))):
        right[i] = (right[i] - triangle[i, i + 1 :] @ right[i + 1 :]) / triangle[i, i]
