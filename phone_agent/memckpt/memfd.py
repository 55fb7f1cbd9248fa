"""Memory that belongs to a descriptor instead of a process, and never to the flash."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
from dataclasses import dataclass

CLOSE_ON_EXEC = 1
BLOCK = 512  # bytes, whatever the file system's own are
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}  # Termux's Python has no os.memfd_create, and Android 9's libc neither


@dataclass(frozen=True)
class Memory:
    descriptor: int
    size: int
    kind: str  # memory; or file, where the kernel has nothing better

    @property
    def taken(self) -> int:
        """Bytes that the phone has less available; those that it swapped into zram count as well, and are available.
        Of a file none: the kernel writes its pages out when it must."""
        return os.fstat(self.descriptor).st_blocks * BLOCK if self.kind == "memory" else 0


def is_anonymous() -> bool:
    """Whether what is allocated here is never written to the flash."""
    descriptor = _memfd("keep")
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


def allocate(size: int, name: str) -> Memory:
    """All zeros. Pages are taken only as they are written."""
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
    system = ctypes.CDLL(None, use_errno=True)
    return int(system.syscall(ctypes.c_long(number), ctypes.c_char_p(name.encode()), ctypes.c_uint(CLOSE_ON_EXEC)))


def _unlinked_file() -> int:
    descriptor, path = tempfile.mkstemp(prefix=".keep-")
    os.unlink(path)  # noqa: PTH108 - there is nothing else to do with this path
    return descriptor
