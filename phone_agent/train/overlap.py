"""Communication beside computing: one thread owns the network, sums parts of the gradients and updates their values.

The computing thread says which part is `ready` as backward completes it and which it is about to `need` in the next
forward, where it waits until that part is fresh. Every rank takes the same pieces in the same order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.device import affinity
from phone_agent.train.bucket_order import Piece, Times, arrange, pieces
from phone_agent.train.progress import RankStep
from phone_agent.train.timeline import Timeline

WARM_UP = 2  # steps in which connections are made and memory is touched first: the one after is measured


class Work(Protocol):
    """What the communication thread does, in the same order on all ranks."""

    def reduce(self, where: slice, step: int) -> None:
        """Sum these gradients over all ranks."""
        ...

    def update(self, part: slice, step: int) -> None:
        """New values for a part whose gradients are summed."""
        ...

    def exchange(self, step: int, own: RankStep) -> None:
        """Tell each other how the step went, once all of it is updated."""
        ...

    def gather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Everybody's row, by rank."""
        ...


class Overlap:
    """Methods are the computing thread's, but for those behind the line. `parts` are of what learns: what else is
    needed never changes, and what else is ready nobody waits for."""

    def __init__(
        self, parts: Sequence[slice], piece_bytes: int, work: Work, timeline: Timeline, *, first: int = 1
    ) -> None:
        self.waited = 0.0  # seconds, in all
        self.parts, self._work, self._timeline = parts, work, timeline
        self._part_at = {part.start: number for number, part in enumerate(parts)}
        self._pieces = self._order = pieces(parts, piece_bytes)
        self._first, self._step = first, first - 1
        self._ready = [self._step] * len(parts)  # the last step in which it was
        self._fresh = [self._step] * len(parts)
        self._finished = self._step
        self._own: deque[RankStep] = deque()
        self._ready_after, self._needed_after = [0.0] * len(parts), [0.0] * len(parts)
        self._takes = [0.0] * len(self._pieces)
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._closing = False
        self._began = self._since = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name="communication")
        self._thread.start()

    def begin(self, step: int) -> None:
        self._step = step
        self._since = time.monotonic()
        self._began = self._since - self.waited

    def mark(self, kind: str) -> None:
        """What was done since the last mark."""
        now = time.monotonic()
        self._timeline.add(kind, self._step, self._since, now)
        self._since = now

    def need(self, start: int, _: int) -> None:
        """Waits until the part that starts there has the values of the step before."""
        part = self._part_at.get(start)
        if part is None:
            return
        self.mark("forward")
        self._needed_after[part] = self._computed
        self._wait(lambda: self._fresh[part] >= self._step - 1)

    def ready(self, start: int, _: int) -> None:
        part = self._part_at.get(start)
        if part is None:
            return
        self.mark("backward")
        self._ready_after[part] = self._computed
        with self._changed:
            self._ready[part] = self._step
            self._changed.notify_all()
        self._raise()

    def update(self) -> None:
        """All parts at once, after backward; waits until they have new values."""
        with self._changed:
            self._ready[:] = [self._step] * len(self.parts)
            self._changed.notify_all()
        self._wait(lambda: min(self._fresh) >= self._step)

    def finish(self, own: RankStep) -> None:
        """How the step went here, once its last part is ready."""
        with self._changed:
            self._own.append(own)
            self._changed.notify_all()
        self._raise()

    def catch_up(self, step: int) -> None:
        """Waits until all have told each other how that step went."""
        self._wait(lambda: self._finished >= step)

    def settle(self) -> None:
        """Waits until the step is done with. Until the next one begins, the network is the caller's."""
        self._wait(lambda: self._finished >= self._step)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def _computed(self) -> float:
        """Seconds of computing in this step so far."""
        return self._since - self._began - self.waited

    def _wait(self, done: Callable[[], bool]) -> None:
        if not done():
            started = self._since = time.monotonic()
            with self._changed:
                self._changed.wait_for(lambda: done() or self._error)
            self.mark("wait")
            self.waited += self._since - started
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # ----------------------------------------------------------------------------------- the communication thread's

    def _run(self) -> None:
        affinity.pin_to_little_cores()
        try:
            for step in count(self._first):
                if not self._one(step):
                    return
        except BaseException as error:  # noqa: BLE001 - the computing thread raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _one(self, step: int) -> bool:
        """False: there are no more steps."""
        self._timeline.reducing = step
        reduced_s = 0.0
        for piece in self._order:
            if not self._until_ready(piece.part, step):
                return False
            reduced_s += self._carry(piece, step)
        if not self._until(lambda: bool(self._own)):
            return False
        self._exchange(step, reduced_s)
        return True

    def _until_ready(self, part: int, step: int) -> bool:
        return self._until(lambda: self._ready[part] >= step)

    def _until(self, there: Callable[[], bool]) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: there() or self._closing)
            return there()

    def _carry(self, piece: Piece, step: int) -> float:
        started = time.monotonic()
        self._work.reduce(piece.where, step)
        reduced = time.monotonic()
        self._timeline.add("reduce", step, started, reduced)
        self._takes[piece.number] = reduced - started
        if piece.last:
            self._work.update(self.parts[piece.part], step)
            self._timeline.add("update", step, reduced, time.monotonic())
            with self._changed:
                self._fresh[piece.part] = step
                self._changed.notify_all()
        return reduced - started

    def _exchange(self, step: int, reduced_s: float) -> None:
        started = time.monotonic()
        self._work.exchange(step, replace(self._own.popleft(), reduce_s=reduced_s))
        if step == self._first + WARM_UP:
            self._order = self._agreed_order()
        self._timeline.add("exchange", step, started, time.monotonic())
        with self._changed:
            self._finished = step
            self._changed.notify_all()

    def _agreed_order(self) -> list[Piece]:
        """Where a rank waits for another, a piece takes longer than it needs to: the shortest counts."""
        rows = self._work.gather(np.array([*self._ready_after, *self._needed_after, *self._takes]))
        parts = len(self.parts)
        ready, needed, takes = np.split(rows, [parts, 2 * parts], axis=1)
        return arrange(self._pieces, Times(ready.max(axis=0), needed.max(axis=0), takes.min(axis=0)))
