"""Sums inside each switch first, then across switches, so that a thin cable between them carries each number once.

The buffer is cut into slices, and each slice goes through three stages. Inside a switch a ring scatters the sums: every
member ends with its share of the slice. Ranks of different switches that hold the same numbers sum them in a ring
across; groups need not be of one size, so a rank may meet several others, each for a range of its share. At last
a ring inside the switch gathers. While one slice crosses, the next is being summed inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phone_agent.comm import schedule
from phone_agent.comm.executor import SEGMENT_BYTES, SHORTEST_BYTES, Ring, Rounds, Stage, naps
from phone_agent.comm.schedule import Chunk
from phone_agent.comm.scheduled import ScheduledAllreduce
from phone_agent.comm.wire import Wire, fitting
from phone_agent.comm.world import World

MOST_SLICES = 8
INSIDE, GATHER, ACROSS = 0, 1, 2  # tags within a slice; one more for each range that crosses


@dataclass(frozen=True)
class Crossing:
    """A range of numbers that the same ranks hold, one of each group."""

    whole: slice
    owners: tuple[int, ...]


class Groups:
    """Ranks by switch. Groups and members stand in the order of their ranks, which all ranks know alike."""

    def __init__(self, switches: Sequence[str], rank: int) -> None:
        members: dict[str, list[int]] = {}
        for each, switch in enumerate(switches):
            members.setdefault(switch, []).append(each)
        self.members = list(members.values())
        self.index = list(members).index(switches[rank])
        self.own = self.members[self.index]
        self.position = self.own.index(rank)

    def crossings(self, whole: slice) -> list[Crossing]:
        """Cut wherever any group's shares are, so that each range has one owner a group."""
        shares = [schedule.split(whole, len(group)) for group in self.members]
        bounds = sorted({edge for group in shares for share in group for edge in (share.start, share.stop)})
        return [
            Crossing(slice(low, high), tuple(map(_owner, self.members, shares, [low] * len(shares))))
            for low, high in pairwise(bounds)
        ]


def _owner(group: list[int], shares: list[slice], place: int) -> int:
    chunk = next(number for number, share in enumerate(shares) if share.start <= place < share.stop)
    return group[(chunk - 1) % len(group)]  # see schedule.owned


def slices(size: int, ranks: int) -> int:
    """In how many a buffer of so many bytes on the wire goes through the stages."""
    return max(1, min(MOST_SLICES, size // (ranks * SHORTEST_BYTES)))


class HierarchicalAllreduce(ScheduledAllreduce):
    def __init__(self, world: World, wire: Wire, switches: Sequence[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        super().__init__(world, wire)
        self._segment = fitting(wire, segment_bytes)
        self._groups = Groups(switches, world.rank)

    def _plan(self, length: int) -> Rounds:
        wholes = schedule.split(slice(0, length), slices(self._wire.size(length), self._world.size))
        stages = [stage for number, whole in enumerate(wholes) for stage in self._stages(whole, number)]
        return Rounds(stages, self._wire, naps(), self._workshop)

    def _stages(self, whole: slice, number: int) -> tuple[Stage, ...]:
        """Of a slice. It enters one when it has left the one before, and the slice ahead has left that one."""
        rings = self._rings(whole, number)
        first = number * len(rings)
        return tuple(
            Stage(each, (*([first + place - 1] if place else ()), *([first + place - len(rings)] if number else ())))
            for place, each in enumerate(rings)
        )

    def _rings(self, whole: slice, number: int) -> tuple[tuple[Ring, ...], ...]:
        groups, world, rank = self._groups, self._world, self._world.rank
        crossings = groups.crossings(whole)
        first_tag = 1 + number * (ACROSS + world.size)
        inside = schedule.cut(whole, len(groups.own), self._segment)
        scattering = schedule.reduce_scatter(groups.position, inside)
        across = (
            Ring(
                schedule.allreduce(groups.index, self._across(crossing.whole)),
                world.neighbours(crossing.owners, first_tag + ACROSS + tag),
            )
            for tag, crossing in enumerate(crossings)
            if crossing.owners[groups.index] == rank
        )
        finished = [self._finished(share, crossings) for share in schedule.split(whole, len(groups.own))]
        gathering = schedule.all_gather(groups.position, finished)
        return (
            (Ring(scattering, world.neighbours(groups.own, first_tag + INSIDE)),),
            tuple(across),
            (Ring(gathering, world.neighbours(groups.own, first_tag + GATHER), gathers=True),),
        )

    def _across(self, whole: slice) -> tuple[Chunk, ...]:
        return schedule.cut(whole, len(self._groups.members), self._segment)

    def _finished(self, share: slice, crossings: list[Crossing]) -> Chunk:
        """The pieces as they crossed: a rounding wire passes them on as they are."""
        return tuple(
            piece
            for crossing in crossings
            if share.start <= crossing.whole.start < share.stop
            for chunk in self._across(crossing.whole)
            for piece in chunk
        )
