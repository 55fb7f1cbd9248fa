"""Carries schedules out: receives the next pieces while adding the last, and never blocks in one of several rings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.schedule import Act, Hop, Schedule
from phone_agent.comm.wire import Floats, Span, Wire

SEGMENT_BYTES = 256 * 1024  # on the wire; mca-params.conf has Open MPI send as much at once, without asking first
SHORTEST_BYTES = 64 * 1024  # shorter messages cost more in starting than in sending
AHEAD = 8  # receives waiting, and sends under way: what nobody waits for is kept aside and copied once more
_SHORTEST_NAP_S = 0.00005
_LONGEST_NAP_S = 0.0004  # where pieces are short; the kernel's buffers hold many times what arrives meanwhile
_NAP_S_A_BYTE = 2e-9  # of a piece: a quarter of the time that a 1 Gbit/s link takes for it

Note = Callable[[str, float, float], None]  # what ("send", "receive", "reduce"), from when, until when


class Ticket(Protocol):
    """A transfer under way."""

    def done(self) -> bool: ...


class Transport(Protocol):
    """To the right-hand neighbour, from the left-hand one, in order. An array may not be touched before its ticket."""

    def send(self, data: NDArray[Any]) -> Ticket: ...

    def receive(self, into: NDArray[Any]) -> Ticket: ...


class Pool:
    """Scratch for pieces on the wire."""

    def __init__(self, slot_bytes: int) -> None:
        self._slot_bytes = slot_bytes
        self._free: list[Span] = []

    def lend(self) -> Span:
        return self._free.pop() if self._free else Span.of(np.empty(self._slot_bytes, np.uint8))

    def take_back(self, slot: Span | None) -> None:
        if slot is not None:
            self._free.append(slot)


@dataclass
class Letter:
    """Bytes to send, and the scratch they lie in; None: they are the buffer's own."""

    data: Span
    slot: Span | None
    kept: bool = False  # for a gathering that follows


@dataclass(frozen=True)
class Job:
    """What the rings of one allreduce share. `finished`: by place, what a rounding wire sent of finished pieces."""

    buffer: Span
    residual: Span | None
    wire: Wire
    pool: Pool
    note: Note | None = None
    finished: dict[int, Letter] | None = None

    @classmethod
    def of(cls, buffer: Floats, residual: Floats | None, wire: Wire, pool: Pool, note: Note | None) -> Job:
        return cls(Span.of(buffer), None if residual is None else Span.of(residual), wire, pool, note)

    def left(self, piece: slice) -> Span | None:
        return None if self.residual is None else self.residual.part(piece)

    def room(self, piece: slice) -> tuple[Span, Span]:
        """A slot, and the part of it that this piece takes on the wire."""
        slot = self.pool.lend()
        return slot, Span(slot.array[: self.wire.size(piece.stop - piece.start)], slot.at)


@dataclass
class Round:
    """One ring under way."""

    schedule: Schedule
    job: Job
    transport: Transport
    gathers: bool = False  # it starts with what is finished
    sent_bytes: int = 0
    _begun: int = 0
    _left: int = 0
    _posted: int = 0
    _taken: int = 0
    _handled: int = 0
    _outbox: deque[Letter] = field(default_factory=deque)
    _leaving: deque[tuple[Ticket, Letter]] = field(default_factory=deque)
    _arriving: deque[tuple[Ticket, Letter]] = field(default_factory=deque)

    @property
    def waits_for(self) -> str:
        return "receive" if self._handled < len(self.schedule.hops) else "send"

    @property
    def done(self) -> bool:
        return (
            self._handled == len(self.schedule.hops)
            and self._begun == len(self.schedule.first)
            and not self._outbox
            and not self._leaving
        )

    def advance(self) -> bool:
        """Does what can be done without waiting; whether that was anything."""
        before = self._left + self._handled
        while self._leaving and self._leaving[0][0].done():
            self._release(self._leaving.popleft()[1])
            self._left += 1
        self._dispatch()
        self._post()
        if self._arriving and self._arriving[0][0].done():
            self._handle(self._arriving.popleft()[1], self.schedule.hops[self._handled])
            self._handled += 1
            self._dispatch()
        return self._left + self._handled > before

    def _dispatch(self) -> None:
        while len(self._leaving) < AHEAD:
            if self._begun < len(self.schedule.first):
                letter = self._begin(self.schedule.first[self._begun])
                self._begun += 1
            elif self._outbox:
                letter = self._outbox.popleft()
            else:
                return
            self._leaving.append((self.transport.send(letter.data.array), letter))
            self.sent_bytes += letter.data.array.nbytes

    def _begin(self, piece: slice) -> Letter:
        job, wire = self.job, self.job.wire
        if wire.exact:
            return Letter(job.buffer.part(piece).bytes, None)
        if self.gathers and job.finished is not None:
            letter = job.finished.pop(piece.start)
            letter.kept = False
            return letter
        slot, room = job.room(piece)
        return Letter(wire.encode(job.buffer.part(piece), job.left(piece), room), slot)

    def _post(self) -> None:
        hops = self.schedule.hops
        while self._posted < len(hops) and len(self._arriving) < AHEAD:
            hop = hops[self._posted]
            if hop.act is Act.TAKE and self.job.wire.exact:
                if not self.gathers and self._left <= self._taken:
                    return  # that piece is still being sent from where this receive would write
                self._taken += 1
                letter = Letter(self.job.buffer.part(hop.piece).bytes, None)
            else:
                slot, room = self.job.room(hop.piece)
                letter = Letter(room, slot)
            self._arriving.append((self.transport.receive(letter.data.array), letter))
            self._posted += 1

    def _handle(self, arrived: Letter, hop: Hop) -> None:
        started = time.monotonic()
        if hop.act is Act.TAKE:
            self._take(arrived, hop)
            if self.job.wire.exact:
                return  # it arrived in its place: nothing was computed
        elif hop.forward:
            self._relay(arrived, hop)
        else:
            self.job.wire.add(arrived.data, self.job.buffer.part(hop.piece))
            self.job.pool.take_back(arrived.slot)
        if self.job.note:
            self.job.note("reduce", started, time.monotonic())

    def _relay(self, arrived: Letter, hop: Hop) -> None:
        job, own = self.job, self.job.buffer.part(hop.piece)
        slot, room = (None, arrived.data) if job.wire.exact else job.room(hop.piece)
        pass_on = job.wire.finish if hop.act is Act.FINISH else job.wire.relay
        sent = Letter(pass_on(arrived.data, own, job.left(hop.piece), room), slot)
        job.pool.take_back(arrived.slot)
        if hop.act is Act.FINISH and not job.wire.exact:
            self._keep(sent, hop.piece)
        self._outbox.append(sent)

    def _take(self, arrived: Letter, hop: Hop) -> None:
        if not self.job.wire.exact:
            self.job.wire.take(arrived.data, self.job.buffer.part(hop.piece))
            self._keep(arrived, hop.piece)
        if hop.forward:
            self._outbox.append(arrived)
        else:
            self._release(arrived)

    def _keep(self, letter: Letter, piece: slice) -> None:
        if self.job.finished is not None and not self.gathers:
            self.job.finished[piece.start] = letter
            letter.kept = True

    def _release(self, letter: Letter) -> None:
        if not letter.kept:
            self.job.pool.take_back(letter.slot)


class Task(Protocol):
    """Something that goes on by being asked to."""

    @property
    def done(self) -> bool: ...

    @property
    def waits_for(self) -> str: ...

    def advance(self) -> bool: ...


def carry_out(tasks: Sequence[Task], note: Note | None = None, piece_bytes: int = 0) -> None:
    """All of them at once. Waits by short naps: a phone's core is better spent or left cold than polling, and what
    arrives meanwhile is read at one go. Where pieces are long, naps are."""
    pending = list(tasks)
    first_nap = max(_SHORTEST_NAP_S, piece_bytes * _NAP_S_A_BYTE)
    longest_nap = max(_LONGEST_NAP_S, first_nap)
    quiet_since, naps, nap = time.monotonic(), 0, first_nap
    while pending := [task for task in pending if not task.done]:
        moved = [task.advance() for task in pending]
        if any(moved):
            if note and naps:
                note(pending[0].waits_for, quiet_since, time.monotonic())
            quiet_since, naps, nap = time.monotonic(), 0, first_nap
            continue
        time.sleep(nap)
        naps, nap = naps + 1, min(2 * nap, longest_nap)
