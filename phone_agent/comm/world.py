"""The ranks of a run and what they need of each other besides the gradients."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.rounds import Transport
from phone_agent.errors import AgentError


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
        raise AgentError("one process has no neighbours")

    def sum_in_place(self, buffer: NDArray[Any]) -> None:
        """The sum over one rank is what it has."""


def open_world() -> World:
    """What mpirun made us part of; alone when it was not mpirun that started us."""
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return Alone()
    from phone_agent.comm.mpi import MpiWorld

    return MpiWorld()
