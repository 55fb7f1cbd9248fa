"""A training state in the keeper's memory. What lives there is there twice: itself, and its copy. All else lives
elsewhere, and is copied after each step, even and odd ones in turn.

    header | what is live | its copy | all else after even steps | all else after odd steps
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.memckpt import header
from phone_agent.memckpt.header import COPY, LIVE, Mark

Array = NDArray[Any]
ALIGNMENT = 4096
TIMES = 2  # that anything is there


def signature(like: Mapping[str, Array], living: Collection[str]) -> list[list[Any]]:
    """What lies where: another one's memory cannot be read."""
    return [[name, str(buffer.dtype), buffer.size, name in living] for name, buffer in like.items()]


def size(like: Mapping[str, Array]) -> int:
    return header.SIZE + TIMES * sum(map(_room, like.values()))


class Copies:
    """`like`: names, types and sizes of what is kept, always in this order; `living`: names of what lives here."""

    def __init__(self, descriptor: int, like: Mapping[str, Array], living: Collection[str]) -> None:
        self._memory = mmap.mmap(descriptor, size(like))
        self._end = header.SIZE
        lives = {name: buffer for name, buffer in like.items() if name in living}
        others = {name: buffer for name, buffer in like.items() if name not in living}
        self.live, self._copy = self._cut(lives), self._cut(lives)
        self._turns = self._cut(others), self._cut(others)

    def held(self) -> list[Mark]:
        return header.held(self._marks)

    def commit(self, mark: Mark, buffers: Mapping[str, Array]) -> None:
        """What is live is this step's now. The copy, if it is one, is of the step before: all else of that is in the
        other turn."""
        turn = self._turn(mark)
        _copy(turn, buffers, turn)
        header.write(self._memory, LIVE, mark)

    def follow(self, mark: Mark) -> None:
        """The copy becomes what is live, and that is free to change."""
        self._copy_live(mark)
        self.let_go()

    def secure(self, mark: Mark) -> None:
        """Of a step that is held: it is the copy's from now on, so that what is live may be lost."""
        if self._marks[COPY] != mark:
            self._copy_live(mark)
        self.let_go()

    def let_go(self) -> None:
        """Before what is live changes."""
        header.write(self._memory, LIVE, None)

    def read(self, mark: Mark, buffers: Mapping[str, Array]) -> None:
        """The copy, into what is live; all else, into the buffers."""
        turn = self._turn(mark)
        _copy(self.live, self._copy, self.live)
        _copy(turn, turn, buffers)

    def restamp(self, attempt: int) -> None:
        """The copy is that attempt's now."""
        header.restamp(self._memory, COPY, attempt)

    def replace(self, mark: Mark, buffers: Mapping[str, Array]) -> None:
        """Whatever was held, it is this now."""
        self.let_go()
        header.write(self._memory, COPY, None)
        self.commit(mark, buffers)
        self.follow(mark)

    @property
    def _marks(self) -> list[Mark | None]:
        return header.read(self._memory)

    def _turn(self, mark: Mark) -> dict[str, Array]:
        return self._turns[mark.step % TIMES]

    def _copy_live(self, mark: Mark) -> None:
        """Whoever is killed in here leaves a copy that says of itself it is of no step; what is live is of one."""
        header.write(self._memory, COPY, None)
        _copy(self.live, self.live, self._copy)
        header.write(self._memory, COPY, mark)

    def _cut(self, like: Mapping[str, Array]) -> dict[str, Array]:
        views = {}
        for name, buffer in like.items():
            views[name] = np.frombuffer(self._memory, buffer.dtype, buffer.size, self._end)
            self._end += _room(buffer)
        return views


def _copy(names: Iterable[str], source: Mapping[str, Array], into: Mapping[str, Array]) -> None:
    for name in names:
        np.copyto(into[name], source[name])


def _room(buffer: Array) -> int:
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
