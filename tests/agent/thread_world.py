"""Ranks as threads, over a transport that punishes touching data too early."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
PATIENCE_S = 120


class Transfer:
    def __init__(self, data: NDArray[Any]) -> None:
        self.data = data
        self._done = threading.Event()
        self.done = self._done.is_set
        self.meet = self._done.set


class Edge:
    """From one rank to another. A send lends its array, which is copied when a receive meets it, as MPI may do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sends: deque[Transfer] = deque()
        self._receives: deque[Transfer] = deque()

    def send(self, data: NDArray[Any]) -> Transfer:
        return self._add(self._sends, data)

    def receive(self, into: NDArray[Any]) -> Transfer:
        into[...] = 99  # what a receive is given belongs to it from now on
        return self._add(self._receives, into)

    def _add(self, waiting: deque[Transfer], data: NDArray[Any]) -> Transfer:
        transfer = Transfer(data)
        with self._lock:
            waiting.append(transfer)
            while self._sends and self._receives:
                sent, received = self._sends.popleft(), self._receives.popleft()
                assert len(sent.data) == len(received.data), "a message of another length was expected"
                received.data[...] = sent.data
                sent.meet()
                received.meet()
        return transfer


class Neighbours:
    def __init__(self, left: Edge, right: Edge) -> None:
        self.send, self.receive = right.send, left.receive


class Sums:
    """Stands in for MPI_Allreduce."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(size, timeout=PATIENCE_S)
        self._rows: dict[int, NDArray[Any]] = {}

    def gather(self, rank: int, row: NDArray[Any]) -> NDArray[Any]:
        with self._lock:
            self._rows[rank] = row.copy()
        self._barrier.wait()
        rows = np.stack([self._rows[rank] for rank in sorted(self._rows)])
        self._barrier.wait()
        return rows


class ThreadWorld:
    def __init__(self, rank: int, size: int, edges: defaultdict[tuple[int, int, int], Edge], sums: Sums) -> None:
        self.rank, self.size = rank, size
        self._edges, self._sums = edges, sums

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._sums.gather(self.rank, row)

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)

    def neighbours(self, ring: Sequence[int], tag: int) -> Neighbours:
        position = list(ring).index(self.rank)
        left, right = ring[position - 1], ring[(position + 1) % len(ring)]
        return Neighbours(self._edges[left, self.rank, tag], self._edges[self.rank, right, tag])

    def sum_in_place(self, buffer: NDArray[Any]) -> None:
        buffer[...] = self._sums.gather(self.rank, buffer).sum(axis=0, dtype=buffer.dtype)


class _Edges(defaultdict[tuple[int, int, int], Edge]):
    """Made by whichever end comes first."""

    def __init__(self) -> None:
        super().__init__(Edge)
        self._lock = threading.Lock()

    def __missing__(self, key: tuple[int, int, int]) -> Edge:
        with self._lock:
            return self[key] if key in self else super().__missing__(key)


def on_ranks(size: int, work: Callable[[ThreadWorld], T], patience_s: float = PATIENCE_S) -> list[T]:
    """What each rank's work returns."""
    edges, sums = _Edges(), Sums(size)
    with ThreadPoolExecutor(size) as ranks:
        waiting = [ranks.submit(work, ThreadWorld(rank, size, edges, sums)) for rank in range(size)]
        return [done.result(patience_s) for done in waiting]
