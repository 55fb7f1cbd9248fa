"""The next batch is made while the present one is computed with: by one thread, one batch ahead, no further."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.contract.schema import RunSpec
from phone_agent.core.thread_pool import aligned
from phone_agent.data import Dataset
from phone_agent.data.sampling import ALL, Batch, MakeArray, Source, sampler

Wanted = tuple[int, slice]


@dataclass(frozen=True)
class _Made:
    wanted: Wanted
    batch: Batch | None = None
    error: BaseException | None = None


class Prefetch:
    """Guesses that after a part of a batch comes the next part, and after the last one the next step's first.

    Where that was wrong, the wanted one is made at once. What goes wrong in the thread is raised where it is asked for.
    """

    def __init__(self, source: Source, parts: Sequence[slice] = (ALL,)) -> None:
        self._source, self._parts = source, list(parts)
        self._orders: queue.SimpleQueue[Wanted | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[_Made] = queue.SimpleQueue()
        self._ahead: Wanted | None = None
        self._thread = threading.Thread(
            target=_work, args=(source, self._orders, self._made), daemon=True, name="prefetch"
        )
        self._thread.start()
        self._end = weakref.finalize(self, self._orders.put, None)

    def batch(self, step: int, part: slice = ALL) -> Batch:
        wanted = (step, part)
        if self._ahead is None:
            self._order(wanted)
        made = self._made.get()
        if made.wanted != wanted:
            self._order(wanted)
            made = self._made.get()
        self._ahead = None
        if made.batch is None:
            raise made.error or AssertionError
        self._order(self._following(wanted))
        return made.batch

    def expect(self, parts: Sequence[slice]) -> None:
        self._parts = list(parts)

    def close(self) -> None:
        self._end()
        self._thread.join()
        self._source.close()

    def _order(self, wanted: Wanted) -> None:
        self._ahead = wanted
        self._orders.put(wanted)

    def _following(self, wanted: Wanted) -> Wanted:
        step, part = wanted
        place = self._parts.index(part) + 1 if part in self._parts else 0
        return (step, self._parts[place]) if place < len(self._parts) else (step + 1, self._parts[0])


def _work(source: Source, orders: queue.SimpleQueue[Wanted | None], made: queue.SimpleQueue[_Made]) -> None:
    while (wanted := orders.get()) is not None:
        try:
            made.put(_Made(wanted, source.batch(*wanted)))
        except BaseException as error:  # noqa: BLE001 - whatever it is, whoever waits must know
            made.put(_Made(wanted, error=error))


def open_source(
    spec: RunSpec, rank: int, dataset: Dataset, parts: Sequence[slice] = (ALL,), array: MakeArray = aligned
) -> Source:
    """Made ahead of time, in these parts of a batch; in such memory."""
    return Prefetch(sampler(spec, rank, dataset, array), parts)
