"""Two copies of a training state in the keeper's memory: while one is written, the other is whole."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.keep import header
from phone_agent.keep.header import Mark

Array = NDArray[Any]
ALIGNMENT = 4096


def signature(buffers: Mapping[str, Array]) -> list[list[Any]]:
    """What lies where: another one's memory cannot be read."""
    return [[name, str(buffer.dtype), buffer.size] for name, buffer in buffers.items()]


def size(buffers: Mapping[str, Array]) -> int:
    return header.SIZE + header.SLOTS * sum(map(_room, buffers.values()))


class Slots:
    """`like`: names, types and sizes of what is kept, always in this order."""

    def __init__(self, descriptor: int, like: Mapping[str, Array]) -> None:
        self._memory = mmap.mmap(descriptor, size(like))
        self._views = [self._cut(slot, like) for slot in range(header.SLOTS)]

    def held(self) -> list[Mark]:
        return header.held(header.read(self._memory))

    def write(self, mark: Mark, buffers: Mapping[str, Array]) -> None:
        """Steps in a row take turns. Whoever is killed in here leaves a slot that says of itself it has nothing."""
        slot = mark.step % header.SLOTS
        header.write(self._memory, slot, None)
        for name, view in self._views[slot].items():
            np.copyto(view, buffers[name])
        header.write(self._memory, slot, mark)

    def read(self, mark: Mark, buffers: Mapping[str, Array]) -> None:
        """Into the buffers."""
        slot = header.read(self._memory).index(mark)
        for name, view in self._views[slot].items():
            np.copyto(buffers[name], view)

    def restamp(self, old: Mark, new: Mark) -> None:
        """The same copy, now of another attempt."""
        header.write(self._memory, header.read(self._memory).index(old), new)

    def _cut(self, slot: int, like: Mapping[str, Array]) -> dict[str, Array]:
        start = header.SIZE + slot * sum(map(_room, like.values()))
        views = {}
        for name, buffer in like.items():
            views[name] = np.frombuffer(self._memory, buffer.dtype, buffer.size, start)
            start += _room(buffer)
        return views


def _room(buffer: Array) -> int:
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
