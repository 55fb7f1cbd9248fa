"""The grid's rows and columns as groups that talk. Waiting is polite, as in comm.mpi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from phone_agent.comm.mpi import MpiRequest
from phone_agent.linpack.layout import Grid

Doubles = NDArray[np.float64]


class Line:
    """Processes in one row, or in one column, of the grid."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.size: int = comm.size
        self.place: int = comm.rank

    def broadcast(self, buffer: Doubles, root: int) -> MpiRequest:
        """Begins; whoever calls waits."""
        return MpiRequest(self._comm.Ibcast(buffer, root))

    def add_up(self, buffer: Doubles) -> None:
        """In place; everybody gets the sum."""
        self._wait(self._comm.Iallreduce(MPI.IN_PLACE, buffer))

    def gather(self, row: Doubles) -> Doubles:
        """Everybody's row, by place."""
        rows = np.empty((self.size, row.size))
        self._wait(self._comm.Iallgather(row, rows))
        return rows

    def gather_rows(self, own: Doubles, counts: Sequence[int], into: Doubles) -> None:
        """Some rows of everybody's, one after the other; `counts` says how many of whose."""
        sizes = [count * own.shape[1] for count in counts]
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        self._wait(self._comm.Iallgatherv(own, [into, sizes, starts, MPI.DOUBLE]))

    def send(self, rows: Doubles, to: int) -> MpiRequest:
        return MpiRequest(self._comm.Isend(rows, to))

    def receive(self, into: Doubles, source: int) -> MpiRequest:
        return MpiRequest(self._comm.Irecv(into, source))

    @staticmethod
    def _wait(request: Any) -> None:
        MpiRequest(request).wait()


class Mesh:
    def __init__(self, grid: Grid) -> None:
        world = MPI.COMM_WORLD
        self.grid = grid
        self.row, self.column = grid.place(world.rank)
        self.all = Line(world)
        self.across = Line(world.Split(self.row, self.column))  # the processes of this row
        self.down = Line(world.Split(self.column, self.row))  # those of this column
