"""Anonymous memory that belongs to a file descriptor instead of a process, and is never written to flash."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
from dataclasses import dataclass

CLOSE_ON_EXEC = 1
BLOCK = 512  # bytes: the unit of st_blocks on every file system
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}  # neither Termux's Python nor Android 9's libc has memfd_create


@dataclass(frozen=True)
class Memory:
    descriptor: int
    size: int
    kind: str  # "memory", or "file" where the kernel has no memfd

    @property
    def allocated_bytes(self) -> int:
        """How much less memory the phone has available. Pages swapped to zram are counted although they are available.
        0 for a file: the kernel can write its pages out."""
        return os.fstat(self.descriptor).st_blocks * BLOCK if self.kind == "memory" else 0


def is_anonymous() -> bool:
    """Whether memory allocated here is never written to flash."""
    descriptor = _memfd("memckpt")
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


def allocate(size: int, name: str) -> Memory:
    """Zero-filled. Pages are allocated when they are first written."""
    descriptor, kind = _memfd(name), "memory"
    if descriptor < 0:
        descriptor, kind = _unlinked_file(), "file"
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return Memory(descriptor, size, kind)


def _memfd(name: str) -> int:
    number = MEMFD_CREATE.get(platform.machine())
    if number is None:
        return -1
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), ctypes.c_char_p(name.encode()), ctypes.c_uint(CLOSE_ON_EXEC)))


def _unlinked_file() -> int:
    descriptor, path = tempfile.mkstemp(prefix=".memckpt-")
    os.unlink(path)  # noqa: PTH108 - the path is not used for anything else
    return descriptor
