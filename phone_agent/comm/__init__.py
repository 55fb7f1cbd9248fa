"""Sums over all phones. `collective` picks the algorithm; the caller only ever sees `Collective`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.executor import Note
from phone_agent.comm.groups import divided
from phone_agent.comm.hierarchical import HierarchicalAllreduce
from phone_agent.comm.mpi_allreduce import MpiAllreduce
from phone_agent.comm.residuals import Residuals
from phone_agent.comm.ring import RingAllreduce
from phone_agent.comm.single_rank import LoneAllreduce
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.wire import FP32, WIRES, Wire
from phone_agent.comm.world import World
from phone_agent.contract.errors import AgentError, ErrorCode

if TYPE_CHECKING:
    from phone_agent.comm.autotune import Choice
    from phone_agent.contract.schema import RunSpec
    from phone_agent.nn.packing import Packing


class Collective(Protocol):
    traffic: Traffic
    note: Note | None  # told what takes how long, piece by piece

    def allreduce(self, buffer: NDArray[np.float32]) -> None:
        """Sum over all ranks, in place; every rank ends with the same bits."""
        ...


class Sums(Protocol):
    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        """gradients[part] become the sum over all ranks; whole parameters lie in a part. `step` counts from 1."""
        ...


class Reducer(Sums, Protocol):
    def remember(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """What it keeps from step to step when it sums parts of these: `residuals` are of each rank alone, all else is
        the same everywhere. Asked before the first sum; what is written into them before it counts."""
        ...


Maker = Callable[[World, Wire, Sequence[str]], Collective]


def _ring(world: World, wire: Wire, groups: Sequence[str]) -> Collective:
    del groups
    return RingAllreduce(world, wire)


def _hierarchical(world: World, wire: Wire, groups: Sequence[str]) -> Collective:
    if len(groups) != world.size:
        raise AgentError(
            f"hierarchical needs the group of each of {world.size} phones, not of {len(groups)}",
            code=ErrorCode.BAD_REQUEST,
        )
    if len(set(groups)) == 1:
        return RingAllreduce(world, wire)
    return HierarchicalAllreduce(world, wire, groups)


def _mpi(world: World, wire: Wire, groups: Sequence[str]) -> Collective:
    del groups
    if wire.name != FP32.name:
        raise AgentError(
            f"MPI_Allreduce sends fp32, not {wire.name}; choose ring or hierarchical", code=ErrorCode.BAD_REQUEST
        )
    return MpiAllreduce(world)


ALGORITHMS: dict[str, Maker] = {"ring": _ring, "hierarchical": _hierarchical, "mpi": _mpi, "chunkwise": _mpi}


def collective(
    algorithm: str, world: World, wire: Wire | None = None, groups: Sequence[str] | None = None
) -> Collective:
    """`groups`: which each rank is in; without them all are in one."""
    if algorithm not in ALGORITHMS:
        raise AgentError(
            f"there is no allreduce called '{algorithm}'; there are: {', '.join(ALGORITHMS)}",
            code=ErrorCode.BAD_REQUEST,
        )
    if world.size == 1:
        return LoneAllreduce(wire or FP32)
    return ALGORITHMS[algorithm](world, wire or FP32, ("",) * world.size if groups is None else groups)


def wire_format(name: str) -> Wire:
    if name not in WIRES:
        raise AgentError(
            f"there is no wire format called '{name}'; there are: {', '.join(WIRES)}", code=ErrorCode.BAD_REQUEST
        )
    return WIRES[name]


class Whole:
    """A part in one allreduce."""

    def __init__(self, summed: Collective) -> None:
        self._summed = summed

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        del step
        self._summed.allreduce(gradients[part])

    def remember(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        residuals = getattr(self._summed, "residuals", None)
        left = residuals.live_in(gradients) if isinstance(residuals, Residuals) else None
        return {} if left is None else {"residuals": left}


class Chunkwise:
    """One allreduce a parameter, as the paper did before it packed them; `starts`: where they begin in the buffer."""

    def __init__(self, summed: Collective, starts: Sequence[int]) -> None:
        self._summed, self._starts = summed, starts

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        del step
        low, high, _ = part.indices(gradients.size)
        inside = [start for start in self._starts if low <= start < high]
        for start, stop in pairwise([*inside, high]):
            self._summed.allreduce(gradients[start:stop])

    def remember(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Nothing: it sends all there is."""
        del gradients
        return {}


def reducer(spec: RunSpec, world: World, packing: Packing, choice: Choice, note: Note | None = None) -> Reducer:
    """`note` is told what takes how long. What it remembers depends on the wire, and not on how many ranks there are:
    kept memory that looks different is nobody's, and training would begin anew."""
    from phone_agent.comm import powersgd

    groups = divided([rank.switch for rank in spec.ranks], choice.group)
    factors = choice.wire == "powersgd"
    summed = collective(choice.algorithm, world, powersgd.WIRE if factors else wire_format(choice.wire), groups)
    summed.note = note
    if factors:
        several_or_one = powersgd.PowerSgd if world.size > 1 else powersgd.LonePowerSgd
        return several_or_one(summed, packing, seed=spec.seed, in_full=powersgd.steps_in_full(spec.steps))
    return Chunkwise(summed, starts(packing)) if choice.algorithm == "chunkwise" else Whole(summed)


def starts(packing: Packing) -> list[int]:
    return [slot.offset for slot in packing.slots.values()]
