"""How long each phase of a recovery took, from the last step before a fault to the first step after it."""

from __future__ import annotations

import time
from collections.abc import Callable

DETECTION = "detection"  # from the last reported step to the first sign of a fault
DIAGNOSIS = "diagnosis"  # until the cause is known
TERMINATION = "termination"  # of what is left of the failed attempt, on all phones
STAGING = "staging"
START = "start"  # until mpirun runs
FIRST_STEP = "first step"
PHASES = (DETECTION, DIAGNOSIS, TERMINATION, STAGING, START, FIRST_STEP)


class RecoveryTiming:
    """Each phase lasts from the end of the one before it. Phases of attempts that fail to start add up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Nothing is wrong so far."""
        self._last = self._clock()
        self.seconds: dict[str, float] = {}

    def end_phase(self, name: str, at: float | None = None) -> None:
        """`at`: when it ended; now by default."""
        end = self._clock() if at is None else max(at, self._last)
        self.seconds[name] = self.seconds.get(name, 0.0) + end - self._last
        self._last = end
