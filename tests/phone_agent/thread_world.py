"""A world of threads, with a transport that exposes access to buffers that are still in transfer."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.executor import MpiFunctions

T = TypeVar("T")
TIMEOUT_S = 300
SHUTDOWN_S = 2  # for the other ranks to end once one has failed


class PeerFailedError(Exception):
    """The rank that this one waits for has failed."""


class Transfer:
    def __init__(self, data: NDArray[Any], failed: threading.Event) -> None:
        self.data = data
        self._done, self._failed = threading.Event(), failed
        self.complete = self._done.set

    def done(self) -> bool:
        if not self._done.is_set() and self._failed.is_set():
            raise PeerFailedError
        return self._done.is_set()


class Edge:
    """A link from one rank to another. Data is copied when a send and a receive are matched, as MPI may do."""

    def __init__(self, failed: threading.Event) -> None:
        self._lock, self._failed = threading.Lock(), failed
        self._sends: deque[Transfer] = deque()
        self._receives: deque[Transfer] = deque()

    def send(self, data: NDArray[Any]) -> Transfer:
        return self._add(self._sends, data)

    def receive(self, into: NDArray[Any]) -> Transfer:
        into[...] = 99  # the buffer belongs to the transfer until it is done
        return self._add(self._receives, into)

    def _add(self, waiting: deque[Transfer], data: NDArray[Any]) -> Transfer:
        transfer = Transfer(data, self._failed)
        with self._lock:
            waiting.append(transfer)
            while self._sends and self._receives:
                sent, received = self._sends.popleft(), self._receives.popleft()
                assert len(sent.data) == len(received.data), "send and receive differ in length"
                received.data[...] = sent.data
                sent.complete()
                received.complete()
        return transfer


class Neighbors:
    def __init__(self, left: int, right: int, tag: int, sends: Edge, receives: Edge) -> None:
        self.left, self.right, self.tag = left, right, tag
        self.send, self.receive = sends.send, receives.receive


_Transfer = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_Test = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)
DATATYPE, COMM = 11, 12  # expected arguments of the calls


class Mpi:
    """Substitutes for the MPI functions that the core calls. Exceptions cannot pass through C, so they are stored."""

    def __init__(self, rank: int, edges: defaultdict[tuple[int, int, int], Edge]) -> None:
        self._rank, self._edges = rank, edges
        self._in_flight: dict[int, Transfer] = {}
        self._numbers = count(1)
        self._errors: list[Exception] = []
        self._kept = (_Transfer(self._send), _Transfer(self._receive), _Test(self._test))
        send, receive, test = (ctypes.cast(call, ctypes.c_void_p).value or 0 for call in self._kept)
        self.calls = MpiFunctions(send, receive, test, DATATYPE, COMM, self._failed)

    def _failed(self, code: int) -> Exception:
        assert code == 1
        return self._errors[0]

    def _send(self, at: int, size: int, datatype: int, rank: int, tag: int, comm: int, request: Any) -> int:
        return self._begin(lambda: self._edges[self._rank, rank, tag].send(_bytes(at, size)), datatype, comm, request)

    def _receive(self, at: int, size: int, datatype: int, rank: int, tag: int, comm: int, request: Any) -> int:
        edge = self._edges[rank, self._rank, tag]
        return self._begin(lambda: edge.receive(_bytes(at, size)), datatype, comm, request)

    def _begin(self, begin: Callable[[], Transfer], datatype: int, comm: int, request: Any) -> int:
        try:
            assert (datatype, comm) == (DATATYPE, COMM)
            number = next(self._numbers)
            self._in_flight[number] = begin()
            request[0] = number
        except Exception as error:  # noqa: BLE001 - raised after the core has returned
            self._errors.append(error)
            return 1
        return 0

    def _test(self, request: Any, flag: Any, status: int) -> int:
        del status
        try:
            flag[0] = self._in_flight[request[0]].done()
            if flag[0]:
                del self._in_flight[request[0]]
                request[0] = None  # as MPI does: testing it again would be an error
        except Exception as error:  # noqa: BLE001 - raised after the core has returned
            self._errors.append(error)
            return 1
        return 0


def _bytes(at: int, size: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))


class AllgatherBarrier:
    """Substitute for MPI_Allgather and MPI_Allreduce."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(size)
        self._rows: dict[int, NDArray[Any]] = {}
        self.abort = self._barrier.abort

    def gather(self, rank: int, row: NDArray[Any]) -> NDArray[Any]:
        with self._lock:
            self._rows[rank] = row.copy()
        self._barrier.wait()
        rows = np.stack([self._rows[rank] for rank in sorted(self._rows)])
        self._barrier.wait()
        return rows


class ThreadWorld:
    def __init__(
        self, rank: int, size: int, edges: defaultdict[tuple[int, int, int], Edge], sums: AllgatherBarrier
    ) -> None:
        self.rank, self.size = rank, size
        self._edges, self._sums = edges, sums
        self._mpi = Mpi(rank, edges)

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._sums.gather(self.rank, row)

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)

    def neighbors(self, ring: Sequence[int], tag: int) -> Neighbors:
        position = list(ring).index(self.rank)
        left, right = ring[position - 1], ring[(position + 1) % len(ring)]
        return Neighbors(left, right, tag, self._edges[self.rank, right, tag], self._edges[left, self.rank, tag])

    def mpi_functions(self) -> MpiFunctions:
        return self._mpi.calls

    def mpi_allreduce(self, buffer: NDArray[Any]) -> None:
        buffer[...] = self._sums.gather(self.rank, buffer).sum(axis=0, dtype=buffer.dtype)


class _Edges(defaultdict[tuple[int, int, int], Edge]):
    """Created by whichever end comes first."""

    def __init__(self, failed: threading.Event) -> None:
        super().__init__(lambda: Edge(failed))
        self._lock = threading.Lock()

    def __missing__(self, key: tuple[int, int, int]) -> Edge:
        with self._lock:
            return self[key] if key in self else super().__missing__(key)


class _Ranks(Generic[T]):
    """Daemon threads: one that never ends is ended with the process."""

    def __init__(self, size: int, work: Callable[[ThreadWorld], T]) -> None:
        self._size, self._work = size, work
        self._failed, self._sums = threading.Event(), AllgatherBarrier(size)
        self._edges = _Edges(self._failed)
        self._ended: SimpleQueue[tuple[int, T | None, BaseException | None]] = SimpleQueue()
        self._threads = [threading.Thread(target=self._run, args=(rank,), daemon=True) for rank in range(size)]

    def results(self, timeout_s: float) -> list[T]:
        """Results by rank. An error of one rank ends all ranks and is raised here."""
        for thread in self._threads:
            thread.start()
        until = time.monotonic() + timeout_s
        found: dict[int, T] = {}
        while len(found) < self._size:
            rank, found[rank], error = self._next(until)
            if error is not None:
                self._wake_all()
                raise error
        return [found[rank] for rank in range(self._size)]

    def _run(self, rank: int) -> None:
        try:
            self._ended.put((rank, self._work(ThreadWorld(rank, self._size, self._edges, self._sums)), None))
        except BaseException as error:  # noqa: BLE001 - raised by `results`
            self._ended.put((rank, None, error))

    def _next(self, until: float) -> tuple[int, Any, BaseException | None]:
        try:
            return self._ended.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            where = self._stack_traces()
            self._wake_all()
            raise TimeoutError(f"ranks that did not end:\n{where}") from None

    def _wake_all(self) -> None:
        """Wake the ranks that wait for others."""
        self._failed.set()
        self._sums.abort()
        until = time.monotonic() + SHUTDOWN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _stack_traces(self) -> str:
        frames = sys._current_frames()
        shown = ((rank, frames.get(thread.ident or 0)) for rank, thread in enumerate(self._threads))
        return "\n".join(f"rank {rank}\n{''.join(traceback.format_stack(at))}" for rank, at in shown if at is not None)


def on_ranks(size: int, work: Callable[[ThreadWorld], T], timeout_s: float = TIMEOUT_S) -> list[T]:
    """Run `work` on each rank. Returns the results by rank."""
    return _Ranks(size, work).results(timeout_s)
