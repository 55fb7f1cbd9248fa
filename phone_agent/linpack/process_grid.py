"""Communicators for the rows and columns of the process grid. Waiting yields the CPU, as in comm.mpi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from phone_agent.comm.mpi import MpiRequest
from phone_agent.linpack.matrix import Grid

Doubles = NDArray[np.float64]


class GridComm:
    """A communicator of the processes in one grid row or column."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.size: int = comm.size
        self.rank: int = comm.rank

    def broadcast(self, buffer: Doubles, root: int) -> MpiRequest:
        """Non-blocking: the caller waits on the request."""
        return MpiRequest(self._comm.Ibcast(buffer, root))

    def allreduce_sum(self, buffer: Doubles) -> None:
        """In place."""
        self._wait(self._comm.Iallreduce(MPI.IN_PLACE, buffer))

    def gather(self, row: Doubles) -> Doubles:
        """Allgather: the rows of all processes, by rank."""
        rows = np.empty((self.size, row.size))
        self._wait(self._comm.Iallgather(row, rows))
        return rows

    def gather_rows(self, own: Doubles, counts: Sequence[int], into: Doubles) -> None:
        """Allgatherv of rows; `counts`: rows per rank."""
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


class ProcessGrid:
    def __init__(self, grid: Grid) -> None:
        world = MPI.COMM_WORLD
        self.grid = grid
        self.row, self.column = grid.coordinates(world.rank)
        self.world = GridComm(world)
        self.row_comm = GridComm(world.Split(self.row, self.column))  # this grid row
        self.column_comm = GridComm(world.Split(self.column, self.row))  # this grid column
