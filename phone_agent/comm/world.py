"""The ranks of a run and what they need of each other besides the gradients."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.executor import Calls, Neighbours
from phone_agent.contract.errors import AgentError, ErrorCode, error_line


class Ticket(Protocol):
    """A transfer under way."""

    def done(self) -> bool: ...


class Transport(Neighbours, Protocol):
    """To the right-hand neighbour, from the left-hand one, in order. An array may not be touched before its ticket."""

    def send(self, data: NDArray[Any]) -> Ticket: ...

    def receive(self, into: NDArray[Any]) -> Ticket: ...


class World(Protocol):
    rank: int
    size: int

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Everybody's row, by rank."""
        ...

    def abort(self, code: int) -> NoReturn:
        """Ends every rank."""
        ...

    def neighbours(self, ring: Sequence[int], tag: int) -> Transport:
        """This rank's in a ring of these; rings that go on at the same time have different tags."""
        ...

    def calls(self) -> Calls:
        """What the core sends and receives with."""
        ...

    def sum_in_place(self, buffer: NDArray[Any]) -> None:
        """MPI's own allreduce."""
        ...


class Alone:
    """One process without MPI."""

    rank = 0
    size = 1

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return row[None].copy()

    def abort(self, code: int) -> NoReturn:
        sys.exit(code)

    def neighbours(self, ring: Sequence[int], tag: int) -> Transport:
        del ring, tag
        raise AgentError("one process has no neighbours", code=ErrorCode.INTERNAL_ERROR)

    def calls(self) -> Calls:
        raise AgentError("one process has nobody to send to", code=ErrorCode.INTERNAL_ERROR)

    def sum_in_place(self, buffer: NDArray[Any]) -> None:
        """The sum over one rank is what it has."""


@contextmanager
def ending_all(world: World) -> Iterator[None]:
    """A rank that fails, in whatever way, takes the others with it: they would wait for it for ever."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is
        if not isinstance(error, AgentError):
            traceback.print_exc()
        sys.stderr.write(error_line(error) + "\n")
        world.abort(1)


def open_world() -> World:
    """What mpirun made us part of; alone when it was not mpirun that started us."""
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return Alone()
    from phone_agent.comm.mpi import MpiWorld

    return MpiWorld()
