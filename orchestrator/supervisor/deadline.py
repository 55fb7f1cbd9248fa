"""How long a step may take before somebody looks: by how long steps took so far, not by a constant."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

REMEMBERED = 64  # steps
DEVIATIONS = 12.0  # median deviations: steps of a busy phone scatter widely
FLOOR_S = 2.0  # looking costs every phone a moment of its time
FIRST_S = 60.0  # until the first step is done: programs start, connections are made


class Deadline:
    """`passed` once the next step is overdue; each time that nothing was found, patience doubles."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: deque[float] = deque(maxlen=REMEMBERED)
        self._patience = 1.0
        self._since = clock()

    def step(self, seconds: float | None) -> None:
        if seconds is not None and seconds >= 0:
            self._taken.append(seconds)
        self._patience = 1.0
        self._since = self._clock()

    def alive(self) -> None:
        """Something else was heard of the run, such as an evaluation."""
        self._since = self._clock()

    def nothing_found(self) -> None:
        self._patience *= 2
        self._since = self._clock()

    @property
    def in_vain(self) -> bool:
        """Somebody has looked since the last step, and found nothing."""
        return self._patience > 1.0

    @property
    def limit_s(self) -> float:
        if not self._taken:
            return FIRST_S * self._patience
        median = statistics.median(self._taken)
        deviation = statistics.median(abs(each - median) for each in self._taken)
        return max(FLOOR_S, 2 * median + DEVIATIONS * deviation) * self._patience

    @property
    def passed(self) -> bool:
        return self._clock() - self._since > self.limit_s
