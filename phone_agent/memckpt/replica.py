"""A training state in the checkpoint server's memory.

Mapped buffers are stored twice: the live buffer that training updates in place, and its snapshot. All other buffers
live outside this memory and are copied in after each step, alternately for even and odd steps.

    header | live | snapshot | other buffers after even steps | other buffers after odd steps
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.committed_step import CommittedStep
from phone_agent.memckpt import header
from phone_agent.memckpt.header import LIVE, SNAPSHOT

Array = NDArray[Any]
ALIGNMENT = 4096
COPIES = 2  # of every buffer


def signature(like: Mapping[str, Array], mapped: Collection[str]) -> list[list[Any]]:
    """Identifies the memory layout: memory with another signature cannot be read."""
    return [[name, str(buffer.dtype), buffer.size, name in mapped] for name, buffer in like.items()]


def size(like: Mapping[str, Array]) -> int:
    return header.SIZE + COPIES * sum(map(_padded_bytes, like.values()))


class Replica:
    """`like` has the names, types and sizes of all buffers, always in the same order. `mapped` names those that live
    in this memory."""

    def __init__(self, descriptor: int, like: Mapping[str, Array], mapped: Collection[str]) -> None:
        self._memory = mmap.mmap(descriptor, size(like))
        self._end = header.SIZE
        inside = {name: buffer for name, buffer in like.items() if name in mapped}
        outside = {name: buffer for name, buffer in like.items() if name not in mapped}
        self.live, self._snapshot = self._allocate(inside), self._allocate(inside)
        self._alternating = self._allocate(outside), self._allocate(outside)

    def committed_steps(self) -> list[CommittedStep]:
        return header.committed_steps(self._entries)

    def commit(self, committed: CommittedStep, buffers: Mapping[str, Array]) -> None:
        """Declare that the live buffers hold this step. A valid snapshot still holds the step before, whose other
        buffers are in the other alternating copy."""
        others = self._others(committed)
        _copy(others, buffers, others)
        header.write(self._memory, LIVE, committed)

    def take_snapshot(self, committed: CommittedStep) -> None:
        """Copy the live buffers to the snapshot; afterwards they may change."""
        self._copy_live(committed)
        self.invalidate_live()

    def ensure_snapshot(self, committed: CommittedStep) -> None:
        """Make sure that the snapshot holds this committed step, so that the live buffers may be overwritten."""
        if self._entries[SNAPSHOT] != committed:
            self._copy_live(committed)
        self.invalidate_live()

    def invalidate_live(self) -> None:
        """To be called before the live buffers change."""
        header.write(self._memory, LIVE, None)

    def load(self, committed: CommittedStep, buffers: Mapping[str, Array]) -> None:
        """Copy the snapshot to the live buffers, and all other state into `buffers`."""
        others = self._others(committed)
        _copy(self.live, self._snapshot, self.live)
        _copy(others, others, buffers)

    def read(self, committed: CommittedStep) -> dict[str, Array]:
        """All buffers of a committed step, without copying them."""
        mapped = self.live if self._entries[LIVE] == committed else self._snapshot
        return {**mapped, **self._others(committed)}

    def set_attempt(self, attempt: int) -> None:
        """Assign the snapshot to that attempt."""
        header.set_attempt(self._memory, SNAPSHOT, attempt)

    def clear(self) -> None:
        """Hold no step any more."""
        self.invalidate_live()
        header.write(self._memory, SNAPSHOT, None)

    def overwrite(self, committed: CommittedStep, buffers: Mapping[str, Array]) -> None:
        """Replace whatever was committed before."""
        self.clear()
        self.commit(committed, buffers)
        self.take_snapshot(committed)

    @property
    def _entries(self) -> list[CommittedStep | None]:
        return header.read(self._memory)

    def _others(self, committed: CommittedStep) -> dict[str, Array]:
        return self._alternating[committed.step % COPIES]

    def _copy_live(self, committed: CommittedStep) -> None:
        """A process killed in here leaves an invalid snapshot and valid live buffers."""
        header.write(self._memory, SNAPSHOT, None)
        _copy(self.live, self.live, self._snapshot)
        header.write(self._memory, SNAPSHOT, committed)

    def _allocate(self, like: Mapping[str, Array]) -> dict[str, Array]:
        views = {}
        for name, buffer in like.items():
            views[name] = np.frombuffer(self._memory, buffer.dtype, buffer.size, self._end)
            self._end += _padded_bytes(buffer)
        return views


def _copy(names: Iterable[str], source: Mapping[str, Array], into: Mapping[str, Array]) -> None:
    for name in names:
        np.copyto(into[name], source[name])


def _padded_bytes(buffer: Array) -> int:
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
