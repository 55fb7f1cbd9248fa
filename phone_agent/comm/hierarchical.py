"""Sums inside each switch first, then across switches, so that a thin cable between them carries each number once.

The buffer is cut into slices, and each slice goes through three stages. Inside a switch a ring scatters the sums: every
member ends with its share of the slice. Ranks of different switches that hold the same numbers sum them in a ring
across; groups need not be of one size, so a rank may meet several others, each for a range of its share. At last
a ring inside the switch gathers. While one slice crosses, the next is being summed inside.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from phone_agent.comm import schedule
from phone_agent.comm.residuals import Residuals
from phone_agent.comm.rounds import SEGMENT_BYTES, SHORTEST_BYTES, Job, Note, Pool, Round, Transport, carry_out
from phone_agent.comm.schedule import Chunk, Schedule
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


@dataclass(frozen=True)
class Ring:
    """What goes round between whom, whichever buffer it is of."""

    schedule: Schedule
    transport: Transport
    gathers: bool = False

    def begin(self, job: Job) -> Round:
        return Round(self.schedule, job, self.transport, self.gathers)


Stages = tuple[tuple[Ring, ...], ...]  # of a slice; the rings of one go on at the same time


class HierarchicalAllreduce:
    note: Note | None = None

    def __init__(self, world: World, wire: Wire, switches: Sequence[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self.traffic = Traffic()
        self._world, self._wire, self._segment = world, wire, fitting(wire, segment_bytes)
        self._groups = Groups(switches, world.rank)
        self._pool = Pool(wire.size(self._segment))
        self.residuals = Residuals(wire)
        self._plans: dict[int, tuple[Stages, ...]] = {}

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        job = Job.of(buffer, self.residuals.of(buffer), self._wire, self._pool, self.note)
        lanes: list[_Lane] = []
        for stages in self._plan(buffer.size):
            own = replace(job, finished={} if len(self._groups.own) > 1 else None)
            begun = deque([ring.begin(own) for ring in stage] for stage in stages)
            lanes.append(_Lane(begun, lanes[-1] if lanes else None))
        carry_out(lanes, self.note)
        self.traffic.add(sum(lane.sent_bytes for lane in lanes), time.monotonic() - started)

    def _plan(self, length: int) -> tuple[Stages, ...]:
        """Slice by slice. Training sums the same few lengths again and again."""
        if length not in self._plans:
            wholes = schedule.split(slice(0, length), slices(self._wire.size(length), self._world.size))
            self._plans[length] = tuple(self._stages(whole, number) for number, whole in enumerate(wholes))
        return self._plans[length]

    def _stages(self, whole: slice, number: int) -> Stages:
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
