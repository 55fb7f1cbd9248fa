"""Timer slack: how precisely the kernel wakes this process."""

from __future__ import annotations

import ctypes
from contextlib import suppress

PR_SET_TIMERSLACK = 29
PR_GET_TIMERSLACK = 30
PRECISE_NS = 50_000  # the Linux default; Android sets 40 ms for background apps, and a ring sleeps in every hop


def reduce_timer_slack() -> int | None:
    """For this thread and the threads it starts. Returns the resulting slack in ns; None if unknown."""
    with suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(PRECISE_NS), 0, 0, 0)
        slack = int(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0))
        return slack if slack >= 0 else None
    return None
