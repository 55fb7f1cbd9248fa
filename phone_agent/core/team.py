"""Threads that run programs of the core: parked inside it between programs, so that waking them costs microseconds."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.library import CoreError, isa_index, library

ALIGNMENT = 64


def aligned(count: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Zeroed memory that starts on a cache line. Pages not touched cost nothing."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(count * size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * size].view(dtype)


@dataclass(frozen=True)
class Program:
    """Steps in the core's own form. Keeps the ops alive; the tensors they point to are the maker's to keep."""

    steps: ctypes.Array[ops.Step]
    kept: tuple[ctypes.Structure, ...]

    @classmethod
    def of(cls, made: Iterable[tuple[ops.Kind, ctypes.Structure]]) -> Program:
        pairs = list(made)
        steps = (ops.Step * len(pairs))(*(ops.Step(kind, 0, ctypes.addressof(op)) for kind, op in pairs))
        return cls(steps, tuple(op for _, op in pairs))

    def __len__(self) -> int:
        return len(self.steps)


class Team:
    """`threads` of them, this one included. Close it, or let it go: its threads end."""

    def __init__(self, threads: int, isa: str | None = None, workspace_bytes: int = 0) -> None:
        if not 1 <= threads <= ops.MAX_THREADS:
            raise CoreError(f"{threads} threads: the core runs on 1 to {ops.MAX_THREADS}")
        self.threads = threads
        self._core = library()
        self._isa = isa_index(self._core, isa)
        self.isa: str = self._core.core_isa_name(self._isa).decode()
        self._workspace = aligned(max(workspace_bytes, 1), np.uint8)
        self._pool = aligned(ops.POOL_BYTES, np.uint8)
        self._core.core_open(self._pool.ctypes.data, self._isa, threads, self._workspace.ctypes.data)
        self._process = os.getpid()
        self._running = threading.Lock()
        workers: list[threading.Thread] = []
        self._end = weakref.finalize(self, _end, self._core, self._pool, workers, self._running, self._process)
        self._start(workers)

    def _start(self, workers: list[threading.Thread]) -> None:
        """All of them, or none is left."""
        pool = self._pool.ctypes.data
        for index in range(1, self.threads):
            work, name = self._core.core_work, f"core-{index}"
            worker = threading.Thread(target=work, args=(pool, index), daemon=True, name=name)
            try:
                worker.start()
            except RuntimeError:
                self.close()
                raise CoreError(f"only {index} of {self.threads} threads can be started") from None
            workers.append(worker)

    def run(
        self, program: Program, first: int = 0, last: int | None = None, nanoseconds: NDArray[np.int64] | None = None
    ) -> None:
        """Steps first .. last; `nanoseconds`, if given, is filled with what each took."""
        last = len(program) if last is None else last
        if not 0 <= first <= last <= len(program):
            raise CoreError(f"steps {first} to {last} of a program of {len(program)}")
        start = ctypes.addressof(program.steps) + first * ctypes.sizeof(ops.Step)
        times = None if nanoseconds is None else _room(nanoseconds, last - first)
        if self._process != os.getpid():
            raise CoreError("this team's threads have ended: it belongs to the process this one was forked from")
        with self._running:  # one program at a time, whoever calls; nor does anybody close the team meanwhile
            if not self._end.alive:
                raise CoreError("this team's threads have ended: it was closed")
            self._core.core_run(self.pool, start, last - first, times)

    @property
    def pool(self) -> int:
        """Where it lies, for calls of the core that run programs themselves. Of one thread, and never two at once."""
        return int(self._pool.ctypes.data)

    def close(self) -> None:
        self._end()


def workspace_bytes(threads: int, made: Sequence[tuple[ops.Kind, ctypes.Structure]], isa: str | None = None) -> int:
    """What the hungriest of these ops needs of a team's workspace."""
    core = library()
    index = isa_index(core, isa)
    return max((int(core.core_workspace(index, threads, kind, ctypes.addressof(op))) for kind, op in made), default=0)


def _room(nanoseconds: NDArray[np.int64], count: int) -> int:
    if nanoseconds.dtype != np.int64 or not nanoseconds.flags.c_contiguous or nanoseconds.size < count:
        raise CoreError(f"the times of {count} steps take as many int64 in a row")
    address: int = nanoseconds.ctypes.data
    return address


def _end(
    core: ctypes.CDLL, pool: NDArray[np.uint8], workers: list[threading.Thread], running: threading.Lock, process: int
) -> None:
    if os.getpid() != process:  # a fork has no such threads, and the lock may be one that nobody will release
        return
    with running:
        core.core_close(pool.ctypes.data)
    for worker in workers:
        worker.join()
