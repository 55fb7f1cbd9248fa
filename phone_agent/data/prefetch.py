"""Prefetching: a thread prepares the next batch while the current one is used."""

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

BatchKey = tuple[int, slice]


@dataclass(frozen=True)
class _Prepared:
    key: BatchKey
    batch: Batch | None = None
    error: BaseException | None = None


class Prefetch:
    """Predicts that the next part of the batch is requested next, and after the last part the first of the next step.

    If the prediction was wrong, the requested batch is prepared then. Errors in the thread are raised by `batch`.
    """

    def __init__(self, source: Source, parts: Sequence[slice] = (ALL,)) -> None:
        self._source, self._parts = source, list(parts)
        self._requests: queue.SimpleQueue[BatchKey | None] = queue.SimpleQueue()
        self._prepared: queue.SimpleQueue[_Prepared] = queue.SimpleQueue()
        self._ahead: BatchKey | None = None
        self._thread = threading.Thread(
            target=_work, args=(source, self._requests, self._prepared), daemon=True, name="prefetch"
        )
        self._thread.start()
        self._end = weakref.finalize(self, self._requests.put, None)

    def batch(self, step: int, part: slice = ALL) -> Batch:
        key = (step, part)
        if self._ahead is None:
            self._request(key)
        prepared = self._prepared.get()
        if prepared.key != key:
            self._request(key)
            prepared = self._prepared.get()
        self._ahead = None
        if prepared.batch is None:
            raise prepared.error or AssertionError
        self._request(self._next_key(key))
        return prepared.batch

    def expect(self, parts: Sequence[slice]) -> None:
        self._parts = list(parts)

    def close(self) -> None:
        self._end()
        self._thread.join()
        self._source.close()

    def _request(self, key: BatchKey) -> None:
        self._ahead = key
        self._requests.put(key)

    def _next_key(self, key: BatchKey) -> BatchKey:
        step, part = key
        index = self._parts.index(part) + 1 if part in self._parts else 0
        return (step, self._parts[index]) if index < len(self._parts) else (step + 1, self._parts[0])


def _work(source: Source, requests: queue.SimpleQueue[BatchKey | None], prepared: queue.SimpleQueue[_Prepared]) -> None:
    while (key := requests.get()) is not None:
        try:
            prepared.put(_Prepared(key, source.batch(*key)))
        except BaseException as error:  # noqa: BLE001 - raised again in `batch`
            prepared.put(_Prepared(key, error=error))


def open_source(
    spec: RunSpec, rank: int, dataset: Dataset, parts: Sequence[slice] = (ALL,), array: MakeArray = aligned
) -> Source:
    """A prefetching source. `parts`: how batches are split; `array`: allocates the memory."""
    return Prefetch(sampler(spec, rank, dataset, array), parts)
