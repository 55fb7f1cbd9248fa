"""Checks before training that this process is the rank the host planned."""

from __future__ import annotations

from collections.abc import Sequence

from phone_agent.comm.world import World
from phone_agent.contract.choices import WIRES
from phone_agent.contract.errors import AgentError, BadlyStagedError, ErrorCode
from phone_agent.contract.schema import RankSpec, RunSpec
from phone_agent.device import interfaces
from phone_agent.train.events import location


def own_rank(spec: RunSpec, world: World) -> RankSpec:
    check_spec(spec)
    if world.size != len(spec.ranks):
        raise AgentError(
            f"mpirun started {world.size} ranks, run.json has {len(spec.ranks)}: stage the run again",
            code=ErrorCode.RANK_MISMATCH,
        )
    own = spec.ranks[world.rank]
    if interfaces.has_address(own.address) is False:
        raise AgentError(
            f"rank {own.rank} should be {own.phone} at {own.address}, but this phone does not have that address: "
            "hostfile and run.json disagree, or the phone's address changed",
            code=ErrorCode.RANK_MISMATCH,
        )
    return own


def check_spec(spec: RunSpec) -> None:
    if [rank.rank for rank in spec.ranks] != list(range(len(spec.ranks))):
        raise BadlyStagedError("run.json must list its ranks as 0, 1, 2, ...")
    for rank in spec.ranks:
        if rank.batch < 1:
            raise BadlyStagedError(f"run.json gives {rank.phone} a batch of {rank.batch}: at least 1 is needed")
    if spec.communication.wire not in WIRES:
        raise BadlyStagedError(f"unknown wire format '{spec.communication.wire}'; choose one of: {', '.join(WIRES)}")


def check_same_start(ranks: Sequence[RankSpec], checksums: Sequence[float]) -> None:
    """`checksums`: of each rank's initial weights."""
    for rank in ranks:
        if checksums[rank.rank] != checksums[0]:
            raise AgentError(
                f"{location(rank)} has different initial weights than rank 0: provision it again",
                code=ErrorCode.STATE_MISMATCH,
            )
