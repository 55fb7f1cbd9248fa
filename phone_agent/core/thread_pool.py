"""Threads that run programs of the core. Idle threads wait inside the C code, so waking them costs microseconds."""

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

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.core import ops
from phone_agent.core.library import CoreError, isa_index, library

ALIGNMENT = 128  # bytes: the largest cache line


def aligned(count: int, dtype: Any = np.float32) -> NDArray[Any]:
    """A zeroed array that starts on a cache line. Untouched pages take no memory."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(count * size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * size].view(dtype)


@dataclass(frozen=True)
class Program:
    """An array of steps as the core reads it. Keeps the ops alive, but not the tensors that they point to."""

    steps: ctypes.Array[ops.Step]
    structs: tuple[ctypes.Structure, ...]

    @classmethod
    def of(cls, made: Iterable[tuple[ops.Kind, ctypes.Structure]]) -> Program:
        pairs = list(made)
        steps = (ops.Step * len(pairs))(*(ops.Step(kind, 0, ctypes.addressof(op)) for kind, op in pairs))
        return cls(steps, tuple(op for _, op in pairs))

    def __len__(self) -> int:
        return len(self.steps)


class ThreadPool:
    """`threads` threads: the calling one and its workers, which end on close() or when the pool is collected."""

    def __init__(self, threads: int, isa: str | None = None, workspace_bytes: int = 0) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise CoreError(f"{threads} threads requested, but only 1 to {MAX_THREADS} are supported")
        self.threads = threads
        self._core = library()
        self._isa = isa_index(self._core, isa)
        self.isa: str = self._core.core_isa_name(self._isa).decode()
        self._workspace = aligned(max(workspace_bytes, 1), np.uint8)
        self._state = aligned(ops.THREAD_POOL_BYTES, np.uint8)
        self._core.core_pool_init(self.address, self._isa, threads, self._workspace.ctypes.data)
        self._process = os.getpid()
        self._running = threading.Lock()
        workers: list[threading.Thread] = []
        self._shutdown = weakref.finalize(
            self, _shutdown, self._core, self._state, workers, self._running, self._process
        )
        self._start(workers)

    def _start(self, workers: list[threading.Thread]) -> None:
        """Start all worker threads. If one cannot be started, end the others."""
        for index in range(1, self.threads):
            worker = threading.Thread(
                target=self._core.core_pool_work, args=(self.address, index), daemon=True, name=f"core-{index}"
            )
            try:
                worker.start()
            except RuntimeError:
                self.close()
                raise CoreError(f"only {index} of {self.threads} threads could be started") from None
            workers.append(worker)

    def run(
        self, program: Program, first: int = 0, last: int | None = None, nanoseconds: NDArray[np.int64] | None = None
    ) -> None:
        """Run steps first .. last - 1. `nanoseconds`, if given, receives the duration of each step."""
        last = len(program) if last is None else last
        if not 0 <= first <= last <= len(program):
            raise CoreError(f"cannot run steps {first} to {last} of a {len(program)}-step program")
        start = ctypes.addressof(program.steps) + first * ctypes.sizeof(ops.Step)
        times = None if nanoseconds is None else _times_address(nanoseconds, last - first)
        if self._process != os.getpid():
            raise CoreError("this thread pool belongs to the parent process")
        with self._running:  # one program at a time; close() waits for it as well
            if not self._shutdown.alive:
                raise CoreError("this thread pool is closed")
            self._core.core_pool_run(self.address, start, last - first, times)

    @property
    def address(self) -> int:
        """Address of the pool's state, for functions of the core that run programs themselves.

        Such a function must use a pool of one thread, and must not run at the same time as run().
        """
        return int(self._state.ctypes.data)

    def close(self) -> None:
        self._shutdown()


def workspace_bytes(threads: int, made: Sequence[tuple[ops.Kind, ctypes.Structure]], isa: str | None = None) -> int:
    """The workspace that a pool needs to run any of these ops: the largest of their needs."""
    core = library()
    index = isa_index(core, isa)
    return max((int(core.core_workspace(index, threads, kind, ctypes.addressof(op))) for kind, op in made), default=0)


def _times_address(nanoseconds: NDArray[np.int64], count: int) -> int:
    if nanoseconds.dtype != np.int64 or not nanoseconds.flags.c_contiguous or nanoseconds.size < count:
        raise CoreError(f"the times of {count} steps need a contiguous int64 array of that size")
    address: int = nanoseconds.ctypes.data
    return address


def _shutdown(
    core: ctypes.CDLL, state: NDArray[np.uint8], workers: list[threading.Thread], running: threading.Lock, process: int
) -> None:
    if os.getpid() != process:  # a forked child has none of these threads, and its copy of the lock may stay locked
        return
    with running:
        core.core_pool_shutdown(state.ctypes.data)
    for worker in workers:
        worker.join()
