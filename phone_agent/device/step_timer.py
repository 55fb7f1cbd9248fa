"""Times repeated steps."""

from __future__ import annotations

import time
from collections.abc import Callable

Step = Callable[[], object]


def time_steps(
    step: Step,
    count: int = 1,
    *,
    min_seconds: float = 0.0,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds of each step: at least `count` steps, and for at least `min_seconds` altogether.

    The warm-up steps come first and are not timed: they touch memory, compile kernels and fill caches.
    """
    for _ in range(warm_up):
        step()
    seconds: list[float] = []
    end = time.perf_counter() + min_seconds
    while len(seconds) < count or time.perf_counter() < end:
        started = clock()
        step()
        seconds.append(clock() - started)
    return seconds
