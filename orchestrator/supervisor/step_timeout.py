"""How long a step may take before the supervisor probes the phones: estimated from earlier steps, not a constant."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

WINDOW = 64  # steps
DEVIATIONS = 12.0  # median absolute deviations: step times of a busy phone vary widely
MINIMUM_S = 2.0  # a probe costs every phone some compute time
FIRST_STEP_S = 60.0  # programs start and connections are made
_PER_RANK_S = 0.1  # of that
_MAX_BACKOFF_STARTING = 4.0  # until the first step, a rank that hangs is to be found


class StepTimeout:
    """Expires when the next step is overdue. Every probe that finds nothing doubles it until the next step."""

    def __init__(self, ranks: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_step_s = FIRST_STEP_S + _PER_RANK_S * ranks
        self._step_times: deque[float] = deque(maxlen=WINDOW)
        self._backoff = 1.0
        self._since = clock()

    def record_step(self, seconds: float | None) -> None:
        if seconds is not None and seconds >= 0:
            self._step_times.append(seconds)
        self._backoff = 1.0
        self._since = self._clock()

    def record_activity(self) -> None:
        """The run reported something other than a step, such as an evaluation."""
        self._since = self._clock()

    def back_off(self) -> None:
        """A probe found nothing wrong."""
        self._backoff *= 2
        self._since = self._clock()

    @property
    def backed_off(self) -> bool:
        """Whether a probe since the last step has found nothing wrong."""
        return self._backoff > 1.0

    @property
    def usual_step_s(self) -> float | None:
        """None: there was no step yet."""
        return statistics.median(self._step_times) if self._step_times else None

    @property
    def limit_s(self) -> float:
        median = self.usual_step_s
        if median is None:
            return self._first_step_s * min(self._backoff, _MAX_BACKOFF_STARTING)
        deviation = statistics.median(abs(each - median) for each in self._step_times)
        return max(MINIMUM_S, 2 * median + DEVIATIONS * deviation) * self._backoff

    @property
    def expired(self) -> bool:
        return self._clock() - self._since > self.limit_s
