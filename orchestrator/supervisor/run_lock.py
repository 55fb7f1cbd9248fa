"""Who may act on a run: its supervisor, or the process that stops it. Several processes may read its files."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.records.record import RunStore

_POLL_S = 0.1


@contextmanager
def run_lock(store: RunStore, run_id: str, wait_s: float = 0.0) -> Iterator[bool]:
    """Whether the lock was free, or became free in time."""
    with (store.directory(run_id) / "supervisor.lock").open("w") as lock:
        deadline = time.monotonic() + wait_s
        while not (locked := _try(lock)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        yield locked


def _try(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
