"""Locks that show which process runs a daemon.

A PID file can be stale, and its PID may have been reused. A POSIX record lock is released when its process exits, and
F_GETLK returns the PID of the holder as seen from the caller's PID namespace.
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


class LockHeldError(Exception):
    """Another process holds the lock."""


def acquire(path: Path, *, shared: bool = False) -> int:
    """Take the lock until the returned file descriptor is closed or this process exits.

    Closing any other descriptor of the file releases it as well: this process must not ask for the holder.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLK, _request(fcntl.F_RDLCK if shared else fcntl.F_WRLCK))
    except (BlockingIOError, PermissionError):
        os.close(fd)
        raise LockHeldError(path) from None
    return fd


def holder(path: Path) -> int | None:
    """The PID of a process that holds the lock, or None if the lock is free."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, _request(fcntl.F_WRLCK)))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def wait_for_release(path: Path, timeout_s: float) -> bool:
    """Wait until the lock is free. Return False on timeout."""
    deadline = time.monotonic() + timeout_s
    while holder(path) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill_holder(path: Path, timeout_s: float = 20.0, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to the holder of the lock, if there is one, and wait until it has exited."""
    if (pid := holder(path)) is None:
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if holder(path) == pid:  # otherwise the holder exited, and its PID may belong to another process by now
            signal.pidfd_send_signal(handle, number)
            select.select([handle], [], [], timeout_s)
    finally:
        os.close(handle)


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
