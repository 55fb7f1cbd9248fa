"""Sums over all phones. `collective` picks the algorithm; the caller only ever sees `Collective`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import NDArray

from phone_agent.comm.ring import RingAllreduce
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.world import World
from phone_agent.errors import AgentError


class Collective(Protocol):
    traffic: Traffic

    def allreduce(self, buffer: NDArray[Any]) -> None:
        """Sum over all ranks, in place; every rank ends with the same bits."""
        ...


class MpiAllreduce:
    """What Open MPI chooses: for comparison."""

    def __init__(self, world: World) -> None:
        self.traffic = Traffic()
        self._world = world

    def allreduce(self, buffer: NDArray[Any]) -> None:
        started = time.monotonic()
        self._world.sum_in_place(buffer)
        least = 2 * (self._world.size - 1) * buffer.nbytes // self._world.size
        self.traffic.add(least, time.monotonic() - started)


def _ring(world: World) -> Collective:
    if world.size == 1:
        return MpiAllreduce(world)
    return RingAllreduce(world.rank, world.size, world.neighbours())


ALGORITHMS: dict[str, Callable[[World], Collective]] = {"ring": _ring, "mpi": MpiAllreduce}


def collective(algorithm: str, world: World) -> Collective:
    if algorithm not in ALGORITHMS:
        raise AgentError(f"there is no allreduce called '{algorithm}'; there are: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm](world)
