"""Who runs the lab: the anchor holds a lock, and the kernel knows its process id.

A process id in a file can be stale, and its number taken by a stranger. A POSIX record lock cannot: it goes with
its process, and F_GETLK says whose it is, in this process's own numbering.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from pathlib import Path

LOCK_NAME = "anchor.lock"
_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid


def hold(lab_dir: Path) -> None:
    """Takes the lock for as long as this process lives (the file stays open on purpose)."""
    fd = os.open(lab_dir / LOCK_NAME, os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def holder(lab_dir: Path) -> int | None:
    """The anchor's process id, or None if no anchor runs."""
    try:
        fd = os.open(lab_dir / LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def end_holder(lab_dir: Path, number: signal.Signals, patience: float) -> bool:
    """Signals the anchor and waits until it is gone. True if none is left."""
    if (pid := holder(lab_dir)) is None:
        return True
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if holder(lab_dir) != pid:  # it went away, and the number may be someone else's by now
            return holder(lab_dir) is None
        signal.pidfd_send_signal(handle, number)
        return bool(select.select([handle], [], [], patience)[0])
    finally:
        os.close(handle)
