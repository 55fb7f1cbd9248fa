"""Overlap of communication and computation: one thread owns the network, reduces gradients and updates weights.

The compute thread reports each bucket as backward completes it, and before the next forward reads a bucket's weights
it waits until they are updated. All ranks reduce the same chunks in the same order.
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
from phone_agent.train.bucket_order import BucketTimes, Chunk, order_chunks, split_buckets
from phone_agent.train.rank_steps import RankStep
from phone_agent.train.timeline import Timeline

WARM_UP_STEPS = 2  # they include connection set-up and first-touch page faults; the step after them is measured


class StepTasks(Protocol):
    """What the communication thread does, in the same order on all ranks."""

    def reduce(self, span: slice, step: int) -> None:
        """Sum these gradients over all ranks."""
        ...

    def update(self, bucket: slice, step: int) -> None:
        """Update the weights of a bucket whose gradients are reduced."""
        ...

    def exchange(self, step: int, own: RankStep) -> None:
        """Exchange step results between ranks, once all weights are updated."""
        ...

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows of all ranks."""
        ...


class Overlap:
    """Public methods belong to the compute thread. `buckets` covers trainable parameters only: all other weights never
    change, and no one waits for their gradients."""

    def __init__(
        self, buckets: Sequence[slice], chunk_bytes: int, tasks: StepTasks, timeline: Timeline, *, first: int = 1
    ) -> None:
        self.waited_s = 0.0  # in total
        self.buckets, self._tasks, self._timeline = buckets, tasks, timeline
        self._bucket_at = {bucket.start: number for number, bucket in enumerate(buckets)}
        self._chunks = self._order = split_buckets(buckets, chunk_bytes)
        self._first, self._step = first, first - 1
        self._ready = [self._step] * len(buckets)  # last step whose gradients are complete, by bucket
        self._updated = [self._step] * len(buckets)  # last step whose update is applied, by bucket
        self._finished = self._step
        self._own: deque[RankStep] = deque()
        self._ready_after, self._needed_after = [0.0] * len(buckets), [0.0] * len(buckets)
        self._reduce_s = [0.0] * len(self._chunks)
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._closing = False
        self._began = self._since = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name="communication")
        self._thread.start()

    def begin(self, step: int) -> None:
        self._step = step
        self._since = time.monotonic()
        self._began = self._since - self.waited_s

    def mark(self, kind: str) -> None:
        """Record the time since the last mark as this kind of work."""
        now = time.monotonic()
        self._timeline.add(kind, self._step, self._since, now)
        self._since = now

    def wait_for_values(self, start: int, _: int) -> None:
        """Wait until the bucket that starts there has the weights of the step before."""
        bucket = self._bucket_at.get(start)
        if bucket is None:
            return
        self.mark("forward")
        self._needed_after[bucket] = self._computed_s
        self._wait(lambda: self._updated[bucket] >= self._step - 1)

    def gradients_ready(self, start: int, _: int) -> None:
        bucket = self._bucket_at.get(start)
        if bucket is None:
            return
        self.mark("backward")
        self._ready_after[bucket] = self._computed_s
        with self._changed:
            self._ready[bucket] = self._step
            self._changed.notify_all()
        self._raise()

    def update_all(self) -> None:
        """Without overlap: hand over all buckets after backward, and wait until their weights are updated."""
        with self._changed:
            self._ready[:] = [self._step] * len(self.buckets)
            self._changed.notify_all()
        self._wait(lambda: min(self._updated) >= self._step)

    def finish(self, own: RankStep) -> None:
        """Report this rank's step, after its last bucket is ready."""
        with self._changed:
            self._own.append(own)
            self._changed.notify_all()
        self._raise()

    def wait_for_step(self, step: int) -> None:
        """Wait until all ranks have exchanged the results of that step."""
        self._wait(lambda: self._finished >= step)

    def drain(self) -> None:
        """Wait until the current step is complete. Until the next one begins, the caller may use the network."""
        self._wait(lambda: self._finished >= self._step)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def _computed_s(self) -> float:
        """Seconds of computing in this step so far."""
        return self._since - self._began - self.waited_s

    def _wait(self, done: Callable[[], bool]) -> None:
        if not done():
            started = self._since = time.monotonic()
            with self._changed:
                self._changed.wait_for(lambda: done() or self._error)
            self.mark("wait")
            self.waited_s += self._since - started
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # --------------------------------------------------------------------------------------- communication thread

    def _run(self) -> None:
        affinity.pin_to_little_cores()
        try:
            for step in count(self._first):
                if not self._run_step(step):
                    return
        except BaseException as error:  # noqa: BLE001 - the compute thread raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _run_step(self, step: int) -> bool:
        """False if there are no more steps."""
        self._timeline.reducing = step
        reduce_s = 0.0
        for chunk in self._order:
            if not self._wait_until_ready(chunk.bucket, step):
                return False
            reduce_s += self._reduce(chunk, step)
        if not self._wait_unless_closing(lambda: bool(self._own)):
            return False
        self._exchange(step, reduce_s)
        return True

    def _wait_until_ready(self, bucket: int, step: int) -> bool:
        return self._wait_unless_closing(lambda: self._ready[bucket] >= step)

    def _wait_unless_closing(self, condition: Callable[[], bool]) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._closing)
            return condition()

    def _reduce(self, chunk: Chunk, step: int) -> float:
        started = time.monotonic()
        self._tasks.reduce(chunk.span, step)
        reduced = time.monotonic()
        self._timeline.add("reduce", step, started, reduced)
        self._reduce_s[chunk.number] = reduced - started
        if chunk.last:
            self._tasks.update(self.buckets[chunk.bucket], step)
            self._timeline.add("update", step, reduced, time.monotonic())
            with self._changed:
                self._updated[chunk.bucket] = step
                self._changed.notify_all()
        return reduced - started

    def _exchange(self, step: int, reduce_s: float) -> None:
        started = time.monotonic()
        self._tasks.exchange(step, replace(self._own.popleft(), reduce_s=reduce_s))
        if step == self._first + WARM_UP_STEPS:
            self._order = self._measured_order()
        self._timeline.add("exchange", step, started, time.monotonic())
        with self._changed:
            self._finished = step
            self._changed.notify_all()

    def _measured_order(self) -> list[Chunk]:
        """The shortest time per chunk counts: on a rank that waits for another, a chunk takes longer than it needs."""
        rows = self._tasks.allgather(np.array([*self._ready_after, *self._needed_after, *self._reduce_s]))
        buckets = len(self.buckets)
        ready, needed, reduce_s = np.split(rows, [buckets, 2 * buckets], axis=1)
        return order_chunks(self._chunks, BucketTimes(ready.max(axis=0), needed.max(axis=0), reduce_s.min(axis=0)))
