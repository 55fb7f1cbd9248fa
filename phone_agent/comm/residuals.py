"""What a coarse wire rounded away, kept for the next time the same part of the gradients is summed."""

from __future__ import annotations

import numpy as np

from phone_agent.comm.wire import Floats, Wire


class Residuals:
    def __init__(self, wire: Wire) -> None:
        self._wanted = wire.feedback
        self._kept: dict[tuple[int, int], Floats] = {}
        self._home: tuple[Floats, Floats] | None = None

    def live_in(self, summed: Floats) -> Floats | None:
        """One buffer for what is left of all parts of `summed`, so that it can be kept; None: nothing ever is."""
        if not self._wanted:
            return None
        self._home = (summed, np.zeros_like(summed))
        return self._home[1]

    def of(self, buffer: Floats) -> Floats | None:
        """By place and length: training sums the same slices again and again."""
        if not self._wanted:
            return None
        place = (buffer.ctypes.data, buffer.size)
        if self._home is not None and np.may_share_memory(buffer, self._home[0]):
            start = (place[0] - self._home[0].ctypes.data) // buffer.itemsize
            return self._home[1][start : start + buffer.size]
        if place not in self._kept:
            self._kept[place] = np.zeros(buffer.size, np.float32)
        return self._kept[place]


def give_back(left: Floats, summed: Floats) -> None:
    """Where nothing is rounded: all that is owed goes into this sum, and nothing is owed any more.

    Not kept for the day the others return: by then it would be a correction of values that are long gone, and they
    start with nothing owed either.
    """
    summed += left
    left[...] = 0
