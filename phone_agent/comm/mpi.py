"""MPI as transport. Waiting is polite: Open MPI would spin, and a phone's core is better spent or left cold."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from phone_agent.comm.executor import Calls
from phone_agent.contract.errors import AgentError, ErrorCode

SPINS = 50
LONGEST_NAP_S = 0.0005
REMEDY = "set Open MPI and mpi4py up again (clusterctl provision)"


class Request:
    def __init__(self, request: MPI.Request) -> None:
        self.done = request.Test

    def wait(self) -> None:
        for _ in range(SPINS):
            if self.done():
                return
        nap = LONGEST_NAP_S / 16
        while not self.done():
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP_S)


class Neighbours:
    def __init__(self, comm: MPI.Intracomm, ring: Sequence[int], tag: int) -> None:
        position = ring.index(comm.rank)
        self._comm, self.tag = comm, tag
        self.left, self.right = ring[position - 1], ring[(position + 1) % len(ring)]

    def send(self, data: NDArray[Any]) -> Request:
        return Request(self._comm.Isend(data, self.right, self.tag))

    def receive(self, into: NDArray[Any]) -> Request:
        return Request(self._comm.Irecv(into, self.left, self.tag))


class MpiWorld:
    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self._pieces = self._comm.Dup()  # a message space of their own
        self._calls = _calls(self._pieces)

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bruck's algorithm: a rank meets log2(K) others; Open MPI's nonblocking one would connect it to all."""
        rows = np.empty((self.size, len(row)))  # row i is of rank + i, until the end
        rows[0] = row
        distance = 1
        while distance < self.size:
            count = min(distance, self.size - distance)
            send = self._comm.Isend(rows[:count], (self.rank - distance) % self.size)
            receive = self._comm.Irecv(rows[distance : distance + count], (self.rank + distance) % self.size)
            Request(receive).wait()
            Request(send).wait()
            distance *= 2
        return np.roll(rows, self.rank, axis=0)

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)
        raise SystemExit(code)

    def neighbours(self, ring: Sequence[int], tag: int) -> Neighbours:
        return Neighbours(self._pieces, ring, tag)

    def calls(self) -> Calls:
        return self._calls

    def sum_in_place(self, buffer: NDArray[Any]) -> None:
        self._comm.Allreduce(MPI.IN_PLACE, buffer)


def _calls(pieces: MPI.Intracomm) -> Calls:
    """Those that mpi4py itself calls: its module leads to the library it was linked with."""
    library = ctypes.CDLL(MPI.__file__)
    try:
        found = [getattr(library, name) for name in ("MPI_Isend", "MPI_Irecv", "MPI_Test")]
    except AttributeError as error:
        raise AgentError(
            f"MPI's own calls are not to be found through {MPI.__file__}: {error}: {REMEDY}",
            code=ErrorCode.BROKEN_ENVIRONMENT,
        ) from None
    send, receive, test = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found)
    byte, comm = (MPI._handleof(each) for each in (MPI.BYTE, pieces))  # noqa: SLF001 - meant for those who call MPI's C
    return Calls(send, receive, test, byte, comm, MPI.Exception)
