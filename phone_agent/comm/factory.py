"""Collectives by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phone_agent.comm.collective import Collective, MpiAllreduce
from phone_agent.comm.hierarchical import HierarchicalAllreduce
from phone_agent.comm.ring import RingAllreduce
from phone_agent.comm.wire import FP32, Wire
from phone_agent.comm.world import World
from phone_agent.contract.errors import BadRequestError

CollectiveFactory = Callable[[World, Wire, Sequence[str]], Collective]


def _ring(world: World, wire: Wire, groups: Sequence[str]) -> Collective:
    del groups
    return RingAllreduce(world, wire)


def _hierarchical(world: World, wire: Wire, groups: Sequence[str]) -> Collective:
    if len(groups) != world.size:
        raise BadRequestError(
            f"hierarchical allreduce: got groups for {len(groups)} ranks, but there are {world.size} ranks"
        )
    if len(set(groups)) == 1:
        return RingAllreduce(world, wire)
    return HierarchicalAllreduce(world, wire, groups)


def _mpi(world: World, wire: Wire, groups: Sequence[str]) -> Collective:
    del groups
    if wire.name != FP32.name:
        raise BadRequestError(f"MPI_Allreduce supports only fp32, not {wire.name}; use ring or hierarchical")
    return MpiAllreduce(world)


FACTORIES: dict[str, CollectiveFactory] = {
    "ring": _ring,
    "hierarchical": _hierarchical,
    "mpi": _mpi,
    "chunkwise": _mpi,
}


def make_collective(
    algorithm: str, world: World, wire: Wire | None = None, groups: Sequence[str] | None = None
) -> Collective:
    """`groups` names the group of each rank; without it, all ranks form one group."""
    if algorithm not in FACTORIES:
        raise BadRequestError(f"unknown allreduce algorithm '{algorithm}'; choose from: {', '.join(FACTORIES)}")
    if world.size == 1:
        return RingAllreduce(world, wire or FP32)
    return FACTORIES[algorithm](world, wire or FP32, ("",) * world.size if groups is None else groups)
