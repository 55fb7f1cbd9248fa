"""Where the time went between the last step before a fault and the first one after it."""

from __future__ import annotations

import time
from collections.abc import Callable

NOTICING = "noticing"  # from the last step that was heard of to the first sign that something is wrong
ASKING = "asking"  # until the cause is known
ENDING = "ending"  # what is left of the last attempt, on all phones
STAGING = "staging"
STARTING = "starting"  # until mpirun runs
STEPPING = "first step"
NAMES = (NOTICING, ASKING, ENDING, STAGING, STARTING, STEPPING)


class Phases:
    """Each lasts from the end of the one before it. Where attempts fail on the way, theirs add up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Nothing is wrong so far."""
        self._last = self._clock()
        self.seconds: dict[str, float] = {}

    def over(self, name: str, at: float | None = None) -> None:
        """`at`: when, if not now."""
        now = self._clock() if at is None else max(at, self._last)
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now
