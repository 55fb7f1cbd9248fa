"""A rank's side of the keeper: what is committed at which moment, and what a new attempt goes on from.

Values and momenta live in the keeper's memory, with one copy beside them; two marks tell of which step each is. The
communication thread, at the end of step n:

    before ranks tell each other how it went    what is live is marked n; the copy is still of n - 1
    once they have told each other              the copy becomes n, then what is live is free for step n + 1

Whoever is killed leaves a whole state, as each mark is taken away only while the other one stands. And all who were
there to the last have a step in common: from the moment the first of them has heard from all of step n until the first
has heard from all of n + 1, each has n. For when the first hears from all, everybody has marked n; a rank takes that
mark away only once its copy is of n, and touches the copy only once it has itself heard from all of n + 1. So a step
that anybody announced is held on every phone. Nothing else has to keep ranks together: those that step alone tell each
other of each step as well.

All else that is kept (running statistics, second momenta, residuals, anchors) is copied before n is marked, over what
was of n - 2, which nothing is marked as any more. Where nothing can live in the keeper's memory, all is kept so.

A new attempt ends its beginning as a step does: the copy is marked, what is live is not. Until all have got there,
holders have the agreed step in their copies; what is live is only the place where they work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.world import World
from phone_agent.memckpt import client, replica
from phone_agent.memckpt.elect_step import agree
from phone_agent.memckpt.header import MARKS, Mark

Array = NDArray[Any]
STATISTICS = "statistics"
OWN = frozenset({"residuals"})  # of each phone alone: whoever has none starts with none


class Keep(Protocol):
    """`note` is the computing thread's, at its step's end; the others are the communication thread's, before and after
    ranks tell each other how the step went."""

    def note(self, step: int) -> None: ...

    def commit(self, step: int) -> None: ...

    def follow(self, step: int) -> None: ...


class NotKept:
    """For whoever trains for a moment only."""

    def note(self, step: int) -> None:
        """Nothing outlives this process."""

    def commit(self, step: int) -> None:
        """Nothing outlives this process."""

    def follow(self, step: int) -> None:
        """Nothing outlives this process."""


NOT_KEPT = NotKept()


class Kept:
    """`like` are arrays of the types and sizes of all that is kept, `living` the names of those that live in the
    keeper's memory: `live` has them, and they are the training state's from now on. What is in them counts, if
    `goes_on`, until it is restored; else whatever the training state starts from belongs there.

    Running statistics change while a commit is under way: the computing thread says when its step is over."""

    def __init__(  # noqa: PLR0917 - whose state, of what, with whom
        self,
        run: Path,
        attempt: int,
        like: Mapping[str, Array],
        living: Collection[str],
        world: World,
        warn: Callable[[str], None],
    ) -> None:
        self._attempt, self._world = attempt, world
        self._keeper = client.Keeper(run, client.PATIENCE_S)
        descriptor, kind = self._keeper.open(replica.signature(like, living), replica.size(like))
        self._copies = replica.Copies(descriptor, like, living)
        os.close(descriptor)
        self._agreed = agree([*map(_marks, world.allgather(_row(self._copies.held())))])
        self._buffers: dict[str, Array] = {}
        self._noted: dict[int, Array] = {}
        self.seconds = 0.0  # that keeping took, in all
        if kind != "memory":
            warn("no anonymous memory here: the training state is kept in a file, which wears the flash")

    @property
    def live(self) -> dict[str, Array]:
        return self._copies.live

    @property
    def goes_on(self) -> bool:
        """Somebody holds a step."""
        return self._agreed is not None

    def note(self, step: int) -> None:
        self._noted[step] = self._buffers[STATISTICS].copy()

    def commit(self, step: int) -> None:
        statistics = self._noted.pop(step)
        with self._timed():
            self._copies.commit(Mark(self._attempt, step), {**self._buffers, STATISTICS: statistics})

    def follow(self, step: int) -> None:
        with self._timed():
            self._copies.follow(Mark(self._attempt, step))

    def restore(self, buffers: Mapping[str, Array], allreduce: Callable[[NDArray[np.float32]], None]) -> int:
        """The step all go on from, 0 if nobody holds any. Those who lack it get it from the first that has it.
        `buffers` are the training state itself, what is live among them."""
        self._buffers = dict(buffers)
        agreed, rank = self._agreed, self._world.rank
        if agreed is None:
            return 0
        mark, has = agreed.mark, rank in agreed.holders
        if has:
            self._copies.secure(mark)
            self._copies.read(mark, self._buffers)
        self._copies.let_go()
        if len(agreed.holders) < self._world.size:
            self._share(rank, agreed.holders[0], allreduce)
            if has:
                self._copies.read(mark, self._buffers)
        self._world.allgather(np.zeros(1))  # nobody marks it as this attempt's before everybody has it
        if has:
            self._copies.restamp(self._attempt)
        else:
            self._copies.replace(Mark(self._attempt, mark.step), self._buffers)
        return mark.step

    def forget(self) -> None:
        """The run is done: nobody needs it any more. Whoever does not hear of it is told by the next run. What is live
        stays where it is as long as this process has it."""
        with suppress(OSError, ValueError):
            self._keeper.ask("end")
        self._keeper.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds += time.monotonic() - started

    def _share(self, rank: int, source: int, allreduce: Callable[[NDArray[np.float32]], None]) -> None:
        """Summed with the others' nothing, as the first weights are. Holders' own are in their copies meanwhile."""
        for name, buffer in self._buffers.items():
            if rank != source or name in OWN:
                buffer[...] = 0
            if buffer.size and name not in OWN:
                allreduce(buffer)


def _row(held: list[Mark]) -> NDArray[np.float64]:
    """As many numbers on every rank."""
    row = np.full((MARKS, 2), -1.0)
    row[: len(held)] = np.reshape(held, (-1, 2))
    return row.reshape(-1)


def _marks(row: NDArray[np.float64]) -> list[Mark]:
    return [Mark(int(attempt), int(step)) for attempt, step in row.reshape(-1, 2) if step > 0]
