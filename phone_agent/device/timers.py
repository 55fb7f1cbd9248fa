"""How precisely this process is woken up."""

from __future__ import annotations

import ctypes
from contextlib import suppress

PR_SET_TIMERSLACK = 29
PR_GET_TIMERSLACK = 30
PRECISE_NS = 50_000  # Linux's default; Android gives background apps 40 ms, and a ring naps in every one of its hops


def be_precise() -> int | None:
    """For this thread and those it starts; returns the slack in force, None where the system does not tell."""
    with suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(PRECISE_NS), 0, 0, 0)
        slack = int(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0))
        return slack if slack >= 0 else None
    return None
