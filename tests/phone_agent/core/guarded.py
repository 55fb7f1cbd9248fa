"""Memory next to an inaccessible guard page: an out-of-bounds access ends the process."""

from __future__ import annotations

import ctypes
import mmap
from enum import Enum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guard(Enum):
    """The side of the block that touches the guard page; on the other side there may be up to a page of slack."""

    BEHIND = "behind"
    BEFORE = "before"


class GuardedBytes:
    """`size` bytes between two guard pages. An `alignment` of the start may leave a few bytes of slack before the guard
    page behind."""

    def __init__(self, size: int, guard: Guard = Guard.BEHIND, alignment: int = 1) -> None:
        room = max(-(-size // PAGE), 1) * PAGE
        self._length = room + 2 * PAGE
        private_anonymous, read_write = 0x22, 3
        base = _libc.mmap(None, self._length, read_write, private_anonymous, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        self._base: int = base
        for fence in (base, base + PAGE + room):
            if _libc.mprotect(fence, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        first = base + PAGE
        exact = first + room - size
        self.address = first if guard is Guard.BEFORE else exact - exact % alignment
        self.bytes: NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))

    def view(self, dtype: Any) -> NDArray[Any]:
        return self.bytes.view(dtype)

    def close(self) -> None:
        _libc.munmap(self._base, self._length)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
