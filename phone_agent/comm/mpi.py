"""MPI as transport. Waiting polls and sleeps: Open MPI would spin, and waste power and heat on a phone."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from phone_agent.comm.executor import MpiFunctions
from phone_agent.contract.errors import AgentError, ErrorCode

SPINS = 50
MAX_POLL_S = 0.0005
REMEDY = "reinstall Open MPI and mpi4py: clusterctl provision"


class MpiRequest:
    def __init__(self, request: MPI.Request) -> None:
        self.done = request.Test

    def wait(self) -> None:
        for _ in range(SPINS):
            if self.done():
                return
        interval = MAX_POLL_S / 16
        while not self.done():
            time.sleep(interval)
            interval = min(2 * interval, MAX_POLL_S)


class MpiNeighbors:
    def __init__(self, comm: MPI.Intracomm, ring: Sequence[int], tag: int) -> None:
        position = ring.index(comm.rank)
        self._comm, self.tag = comm, tag
        self.left, self.right = ring[position - 1], ring[(position + 1) % len(ring)]

    def send(self, data: NDArray[Any]) -> MpiRequest:
        return MpiRequest(self._comm.Isend(data, self.right, self.tag))

    def receive(self, into: NDArray[Any]) -> MpiRequest:
        return MpiRequest(self._comm.Irecv(into, self.left, self.tag))


class MpiWorld:
    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self._ring_comm = self._comm.Dup()  # ring messages must not match those of other calls
        self._functions = _mpi_functions(self._ring_comm)

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bruck's algorithm: a rank talks to log2(K) others. Open MPI's Iallgather would connect it to all."""
        rows = np.empty((self.size, len(row)))  # row i belongs to rank + i, until the final roll
        rows[0] = row
        distance = 1
        while distance < self.size:
            count = min(distance, self.size - distance)
            send = self._comm.Isend(rows[:count], (self.rank - distance) % self.size)
            receive = self._comm.Irecv(rows[distance : distance + count], (self.rank + distance) % self.size)
            MpiRequest(receive).wait()
            MpiRequest(send).wait()
            distance *= 2
        return np.roll(rows, self.rank, axis=0)

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)
        raise SystemExit(code)

    def neighbors(self, ring: Sequence[int], tag: int) -> MpiNeighbors:
        return MpiNeighbors(self._ring_comm, ring, tag)

    def mpi_functions(self) -> MpiFunctions:
        return self._functions

    def mpi_allreduce(self, buffer: NDArray[Any]) -> None:
        self._comm.Allreduce(MPI.IN_PLACE, buffer)


def _mpi_functions(comm: MPI.Intracomm) -> MpiFunctions:
    """The functions that mpi4py itself calls, found through its extension module."""
    library = ctypes.CDLL(MPI.__file__)
    try:
        found = [getattr(library, name) for name in ("MPI_Isend", "MPI_Irecv", "MPI_Test")]
    except AttributeError as error:
        raise AgentError(
            f"MPI functions not found through {MPI.__file__} ({error}): {REMEDY}", code=ErrorCode.BROKEN_ENVIRONMENT
        ) from None
    send, receive, test = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found)
    byte, handle = (MPI._handleof(each) for each in (MPI.BYTE, comm))  # noqa: SLF001 - mpi4py's interface to C code
    return MpiFunctions(send, receive, test, byte, handle, MPI.Exception)
