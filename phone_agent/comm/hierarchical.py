"""Hierarchical allreduce: sum within each group first, then across groups, so that uplinks carry each number once.

The buffer is cut into slices, and each slice passes through three stages. A ring within the group reduce-scatters it:
every member ends with its share of the slice. Ranks of different groups that hold the same numbers sum them in a ring
across; groups may differ in size, so a rank may take part in several such rings, each for a range of its share. A last
ring within the group all-gathers. The stages of consecutive slices overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phone_agent.comm import schedule
from phone_agent.comm.collective import ScheduledAllreduce
from phone_agent.comm.executor import (
    MIN_MESSAGE_BYTES,
    SEGMENT_BYTES,
    ExecutorContext,
    Ring,
    ScheduleExecutor,
    Stage,
    poll_intervals_ns,
)
from phone_agent.comm.schedule import Chunk
from phone_agent.comm.wire import Wire, floats_in
from phone_agent.comm.world import World


def assign_groups(switches: Sequence[str], max_size: int = 0) -> list[str]:
    """The group of each rank, given the switch of each rank.

    A group is a run of neighbors on one switch. Groups are as even as possible, with at most `max_size` members; 0: one
    group per switch.
    """
    members = Counter(switches)
    seen: Counter[str] = Counter()
    groups = []
    for switch in switches:
        count = -(-members[switch] // max_size) if max_size else 1
        groups.append(f"{switch}/{seen[switch] * count // members[switch]}")
        seen[switch] += 1
    return groups


MAX_SLICES = 8
SCATTER_TAG, GATHER_TAG, CROSS_TAG = 0, 1, 2  # tags within a slice; ranges that cross groups count up from the last


@dataclass(frozen=True)
class CrossGroupRange:
    """A range of the buffer that one rank of each group owns after the reduce-scatter."""

    part: slice
    owners: tuple[int, ...]


class Groups:
    """Ranks by group. Groups and members are in rank order, so all ranks compute the same."""

    def __init__(self, names: Sequence[str], rank: int) -> None:
        members: dict[str, list[int]] = {}
        for each, name in enumerate(names):
            members.setdefault(name, []).append(each)
        self.members = list(members.values())
        self.index = list(members).index(names[rank])
        self.own = self.members[self.index]
        self.position = self.own.index(rank)

    def cross_ranges(self, whole: slice) -> list[CrossGroupRange]:
        """Split wherever a share of any group begins, so that each range has one owner per group."""
        shares = [schedule.split_evenly(whole, len(group)) for group in self.members]
        bounds = sorted({edge for group in shares for share in group for edge in (share.start, share.stop)})
        return [
            CrossGroupRange(slice(low, high), tuple(map(_owner, self.members, shares, [low] * len(shares))))
            for low, high in pairwise(bounds)
        ]


def _owner(group: list[int], shares: list[slice], offset: int) -> int:
    chunk = next(index for index, share in enumerate(shares) if share.start <= offset < share.stop)
    return group[(chunk - 1) % len(group)]  # see schedule.owned_chunk


def slice_count(size: int, ranks: int) -> int:
    """Slices for a buffer of `size` bytes on the wire."""
    return max(1, min(MAX_SLICES, size // (ranks * MIN_MESSAGE_BYTES)))


class HierarchicalAllreduce(ScheduledAllreduce):
    def __init__(self, world: World, wire: Wire, groups: Sequence[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        super().__init__(world, wire)
        self._max_piece = floats_in(wire, segment_bytes)
        self._groups = Groups(groups, world.rank)

    def _plan(self, length: int, context: ExecutorContext) -> ScheduleExecutor:
        count = slice_count(self._wire.size(length), self._world.size)
        slices = schedule.split_evenly(slice(0, length), count)
        stages = [stage for index, each in enumerate(slices) for stage in self._stages(each, index)]
        return ScheduleExecutor(stages, self._wire, poll_intervals_ns(), context)

    def _stages(self, whole: slice, index: int) -> tuple[Stage, ...]:
        """The stages of slice `index`. Each waits for its predecessor, and for the slice before to leave the stage."""
        rings = self._rings(whole, index)
        first = index * len(rings)
        return tuple(
            Stage(each, (*([first + stage - 1] if stage else ()), *([first + stage - len(rings)] if index else ())))
            for stage, each in enumerate(rings)
        )

    def _rings(self, whole: slice, index: int) -> tuple[tuple[Ring, ...], ...]:
        groups, world, rank = self._groups, self._world, self._world.rank
        cross = groups.cross_ranges(whole)
        first_tag = 1 + index * (CROSS_TAG + world.size)
        within = schedule.make_chunks(whole, len(groups.own), self._max_piece)
        scatter = schedule.reduce_scatter(groups.position, within)
        across = (
            Ring(
                schedule.allreduce(groups.index, self._cross_chunks(each.part)),
                world.neighbors(each.owners, first_tag + CROSS_TAG + tag),
            )
            for tag, each in enumerate(cross)
            if each.owners[groups.index] == rank
        )
        finished = [self._finished(share, cross) for share in schedule.split_evenly(whole, len(groups.own))]
        gather = schedule.all_gather(groups.position, finished)
        return (
            (Ring(scatter, world.neighbors(groups.own, first_tag + SCATTER_TAG)),),
            tuple(across),
            (Ring(gather, world.neighbors(groups.own, first_tag + GATHER_TAG), gathers=True),),
        )

    def _cross_chunks(self, whole: slice) -> tuple[Chunk, ...]:
        return schedule.make_chunks(whole, len(self._groups.members), self._max_piece)

    def _finished(self, share: slice, cross: list[CrossGroupRange]) -> Chunk:
        """The pieces exactly as they crossed groups: a rounding wire format forwards their bytes unchanged."""
        return tuple(
            piece
            for each in cross
            if share.start <= each.part.start < share.stop
            for chunk in self._cross_chunks(each.part)
            for piece in chunk
        )
