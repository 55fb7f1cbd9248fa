"""The ranks of a run, and how a rank reaches the others."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.executor import MpiFunctions, RingNeighbors
from phone_agent.contract.errors import AgentError, InternalError, error_line


class TransferRequest(Protocol):
    """A nonblocking send or receive. Its array must not be touched before it is done."""

    def done(self) -> bool: ...


class Transport(RingNeighbors, Protocol):
    """Sends to the right neighbor and receives from the left one, in order."""

    def send(self, data: NDArray[Any]) -> TransferRequest: ...

    def receive(self, into: NDArray[Any]) -> TransferRequest: ...


class World(Protocol):
    rank: int
    size: int

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows of all ranks, by rank."""
        ...

    def abort(self, code: int) -> NoReturn:
        """End all ranks."""
        ...

    def neighbors(self, ring: Sequence[int], tag: int) -> Transport:
        """The neighbors of this rank in a ring of these ranks. Concurrent rings need different tags."""
        ...

    def mpi_functions(self) -> MpiFunctions:
        """What the core sends and receives with."""
        ...

    def mpi_allreduce(self, buffer: NDArray[Any]) -> None:
        """MPI_Allreduce, in place."""
        ...


class SingleProcessWorld:
    """One process without MPI."""

    rank = 0
    size = 1

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return row[None].copy()

    def abort(self, code: int) -> NoReturn:
        sys.exit(code)

    def neighbors(self, ring: Sequence[int], tag: int) -> Transport:
        del ring, tag
        raise InternalError("a single process has no neighbors")

    def mpi_functions(self) -> MpiFunctions:
        raise InternalError("a single process runs without MPI")

    def mpi_allreduce(self, buffer: NDArray[Any]) -> None:
        """The sum over one rank is its own buffer."""


@contextmanager
def abort_all_on_error(world: World) -> Iterator[None]:
    """If this rank fails, end all ranks: the others would wait for it forever."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any failure of this rank
        if not isinstance(error, AgentError):
            traceback.print_exc()
        sys.stderr.write(error_line(error) + "\n")
        world.abort(1)


def open_world() -> World:
    """MPI_COMM_WORLD if mpirun started this process; otherwise a world of one process."""
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return SingleProcessWorld()
    from phone_agent.comm.mpi import MpiWorld

    return MpiWorld()
