"""Sums inside each switch first, then across switches, so that a thin cable between them carries each number once.

The buffer is cut into slices, and each slice goes through three stages. Inside a switch a ring scatters the sums: every
member ends with its share of the slice. Ranks of different switches that hold the same numbers sum them in a ring
across; groups need not be of one size, so a rank may meet several others, each for a range of its share. At last
a ring inside the switch gathers. While one slice crosses, the next is being summed inside.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from phone_agent.comm import schedule
from phone_agent.comm.residuals import Residuals
from phone_agent.comm.rounds import SEGMENT_BYTES, SHORTEST_BYTES, Job, Note, Pool, Round, carry_out
from phone_agent.comm.schedule import Chunk
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.wire import Floats, Wire, fitting
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


class HierarchicalAllreduce:
    note: Note | None = None

    def __init__(self, world: World, wire: Wire, switches: Sequence[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self.traffic = Traffic()
        self._world, self._wire, self._segment = world, wire, fitting(wire, segment_bytes)
        self._groups = Groups(switches, world.rank)
        self._pool = Pool(wire.size(self._segment))
        self.residuals = Residuals(wire)

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        job = Job(buffer, self.residuals.of(buffer), self._wire, self._pool, self.note)
        lanes: list[_Lane] = []
        for number, whole in enumerate(
            schedule.split(slice(0, buffer.size), slices(self._wire.size(buffer.size), self._world.size))
        ):
            own = replace(job, finished={} if len(self._groups.own) > 1 else None)
            lanes.append(_Lane(deque(self._stages(own, whole, number)), lanes[-1] if lanes else None))
        carry_out(lanes, self.note)
        self.traffic.add(sum(lane.sent_bytes for lane in lanes), time.monotonic() - started)

    def _stages(self, job: Job, whole: slice, number: int) -> Iterator[list[Round]]:
        groups, world, rank = self._groups, self._world, self._world.rank
        crossings = groups.crossings(whole)
        first_tag = 1 + number * (ACROSS + world.size)
        inside = schedule.cut(whole, len(groups.own), self._segment)
        ring = world.neighbours(groups.own, first_tag + INSIDE)
        yield [Round(schedule.reduce_scatter(groups.position, inside), job, ring)]
        yield [
            Round(
                schedule.allreduce(groups.index, self._across(crossing.whole)),
                job,
                world.neighbours(crossing.owners, first_tag + ACROSS + tag),
            )
            for tag, crossing in enumerate(crossings)
            if crossing.owners[groups.index] == rank
        ]
        ring = world.neighbours(groups.own, first_tag + GATHER)
        finished = [self._finished(share, crossings) for share in schedule.split(whole, len(groups.own))]
        yield [Round(schedule.all_gather(groups.position, finished), job, ring, gathers=True)]

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


class _Lane:
    """A slice on its way. It enters a stage when it has left the one before, and the slice ahead has left that one."""

    def __init__(self, stages: deque[list[Round]], ahead: _Lane | None) -> None:
        self.sent_bytes = 0
        self.left = 0  # stages
        self._stages, self._ahead = stages, ahead

    @property
    def done(self) -> bool:
        return not self._stages

    @property
    def waits_for(self) -> str:
        return next((ring.waits_for for ring in self._stages[0]), "receive") if self._stages else "send"

    def advance(self) -> bool:
        if self._ahead and self._ahead.left <= self.left:
            return False
        rings = self._stages[0]
        moved = [ring.advance() for ring in rings if not ring.done]
        if all(ring.done for ring in rings):
            self.sent_bytes += sum(ring.sent_bytes for ring in rings)
            self._stages.popleft()
            self.left += 1
            return True
        return any(moved)
