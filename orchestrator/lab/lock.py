"""Who runs the lab: processes hold locks, and the kernel knows whose they are.

A process id in a file can be stale, and its number taken by a stranger. A POSIX record lock cannot: it goes with
its process, and F_GETLK says whose it is, in this process's own numbering.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import time
from pathlib import Path

_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid


def hold(path: Path, *, shared: bool = False) -> None:
    """Takes the lock for as long as this process lives (the file stays open on purpose)."""
    fd = os.open(path, os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLK, _request(fcntl.F_RDLCK if shared else fcntl.F_WRLCK))


def holder(path: Path) -> int | None:
    """The process id of the holder, or of one of them; None if the lock is free."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, _request(fcntl.F_WRLCK)))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def await_release(path: Path, patience: float) -> bool:
    """Waits until nobody holds the lock. False if somebody still does."""
    deadline = time.monotonic() + patience
    while holder(path) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill_holder(path: Path, patience: float = 20.0) -> None:
    """Ends the holder, if there is one, and waits until it is gone."""
    if (pid := holder(path)) is None:
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if holder(path) == pid:  # else it went away, and the number may be a stranger's by now
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], patience)
    finally:
        os.close(handle)


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
