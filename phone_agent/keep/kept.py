"""A rank's side of the keeper: what is committed at which moment, and what a new attempt goes on from.

A step is committed by the communication thread after its last update and before ranks tell each other how it went: so
a step that anybody announced is held on every phone, and whoever has committed the next one knows that all have this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.world import World
from phone_agent.keep import client, slots
from phone_agent.keep.agree import agree
from phone_agent.keep.header import SLOTS, Mark

Array = NDArray[Any]
STATISTICS = "statistics"
OWN = frozenset({"residuals"})  # of each phone alone: whoever has none starts with none


class Keep(Protocol):
    """`note` is the computing thread's, at its step's end; `commit` the communication thread's."""

    def note(self, step: int) -> None: ...

    def commit(self, step: int) -> None: ...


class NotKept:
    """For whoever trains for a moment only."""

    def note(self, step: int) -> None:
        """Nothing outlives this process."""

    def commit(self, step: int) -> None:
        """Nothing outlives this process."""


NOT_KEPT = NotKept()


class Kept:
    """`buffers` are the training state itself, `statistics` among them: those change while a commit is under way, so
    they are copied when the computing thread says that its step is over."""

    def __init__(self, run: Path, attempt: int, buffers: Mapping[str, Array], warn: Callable[[str], None]) -> None:
        self._attempt, self._buffers = attempt, dict(buffers)
        self._keeper = client.Keeper(run, client.PATIENCE_S)
        descriptor, kind = self._keeper.open(slots.signature(buffers), slots.size(buffers))
        self._slots = slots.Slots(descriptor, buffers)
        os.close(descriptor)
        self._noted: dict[int, Array] = {}
        self.seconds = 0.0  # that committing took, in all
        if kind != "memory":
            warn("no anonymous memory here: the training state is kept in a file, which wears the flash")

    @property
    def bytes(self) -> int:
        return slots.size(self._buffers)

    def note(self, step: int) -> None:
        self._noted[step] = self._buffers[STATISTICS].copy()

    def commit(self, step: int) -> None:
        started = time.monotonic()
        statistics = self._noted.pop(step)
        self._slots.write(Mark(self._attempt, step), {**self._buffers, STATISTICS: statistics})
        self.seconds += time.monotonic() - started

    def restore(self, world: World, allreduce: Callable[[NDArray[np.float32]], None]) -> int:
        """The step all go on from, 0 if nobody holds any. Those who lack it get it from the first that has it."""
        agreed = agree([*map(_marks, world.allgather(_row(self._slots.held())))])
        if agreed is None:
            return 0
        has = world.rank in agreed.holders
        if has:
            self._slots.read(agreed.mark, self._buffers)
        if len(agreed.holders) < world.size:
            self._share(world.rank, agreed.holders[0], allreduce)
            if has:
                self._slots.read(agreed.mark, self._buffers)
        world.allgather(np.zeros(1))  # nobody marks it as this attempt's before everybody has it
        own = Mark(self._attempt, agreed.mark.step)
        if has:
            self._slots.restamp(agreed.mark, own)
        else:
            self._slots.write(own, self._buffers)
        return own.step

    def forget(self) -> None:
        """The run is done: nobody needs it any more. Whoever does not hear of it is told by the next run."""
        with suppress(OSError, ValueError):
            self._keeper.ask("end")
        self._keeper.close()

    def _share(self, rank: int, source: int, allreduce: Callable[[NDArray[np.float32]], None]) -> None:
        """Summed with the others' nothing, as the first weights are."""
        for name, buffer in self._buffers.items():
            if rank != source or name in OWN:
                buffer[...] = 0
            if buffer.size and name not in OWN:
                allreduce(buffer)


def _row(held: list[Mark]) -> NDArray[np.float64]:
    """As many numbers on every rank."""
    row = np.full((SLOTS, 2), -1.0)
    row[: len(held)] = np.reshape(held, (-1, 2))
    return row.reshape(-1)


def _marks(row: NDArray[np.float64]) -> list[Mark]:
    return [Mark(int(attempt), int(step)) for attempt, step in row.reshape(-1, 2) if step > 0]
