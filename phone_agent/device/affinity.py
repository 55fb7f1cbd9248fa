"""Scheduling: which cores compute, with how many threads and which priority, and how precisely they wake.

Pin before importing numpy: BLAS reads its setting once.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.device import cpu
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

COMPUTE_NICENESS = 10
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_little_cores: set[int] = set()  # for threads that do not compute
_permitted: dict[tuple[int, ...], tuple[int, ...]] = {}  # our own affinity mask -> what Android permits


@dataclass(frozen=True)
class CoreSet:
    """Cores that compute together, with one thread per core."""

    cores: tuple[int, ...]

    @property
    def threads(self) -> int:
        return min(len(self.cores), MAX_THREADS)  # a server may have more cores than the core supports


def core_sets(paths: SystemPaths = DEFAULT_PATHS) -> list[CoreSet]:
    """Core sets worth measuring, the most likely first: the big cores, then all permitted cores if there are more."""
    permitted = _all_permitted(paths)
    big = cpu.big_among(permitted, paths)
    return [CoreSet(big), *([CoreSet(permitted)] if len(permitted) > len(big) else [])]


def _all_permitted(paths: SystemPaths) -> tuple[int, ...]:
    """The cores that Android permits. Once this process has pinned itself, the kernel reports only our own mask, so it
    is mapped back; any other mask was set by Android."""
    mask = cpu.allowed(paths) or cpu.present(paths)
    return _permitted.get(mask, mask)


def pin_to_core_set(core_set: CoreSet) -> None:
    """Pins the calling thread and the threads that it starts from now on."""
    _pin(core_set.cores)


def pin_to_big_cores(threads: int = 0, paths: SystemPaths = DEFAULT_PATHS) -> int:
    """Pins this process to the big cores. `threads`: 0 means one per big core. Returns the number of threads.

    With more threads than big cores, all permitted cores are used: the threads would compete for the big ones.
    """
    big, *others = core_sets(paths)
    every = others[-1] if others else big
    count = threads or big.threads
    for name in BLAS_THREADS:
        os.environ[name] = str(count)
    _permitted.clear()
    _permitted.update(dict.fromkeys((big.cores, every.cores), every.cores))
    _little_cores.clear()
    _little_cores.update(set(every.cores) - set(big.cores) or every.cores)
    pin_to_core_set(big if count <= len(big.cores) else every)
    return count


def pin_to_little_cores() -> None:
    """Pins the calling thread, which mostly waits, so that it does not take a big core from computing threads.

    If all permitted cores are of one kind, it may use all of them.
    """
    _pin(_little_cores)


def _pin(cores: Collection[int]) -> None:
    with suppress(OSError, AttributeError):  # denied, or not in this Python: slower but correct
        os.sched_setaffinity(0, cores)  # on Linux: the calling thread


def lower_priority() -> None:
    """Lowers the priority of this thread and of the threads that it starts from now on.

    The communication thread waits for every message. With every core busy, it would also wait to be scheduled:
    next to eight busy processes on two cores, short sleeps ended 2.2 ms late on average, and 0.35 ms late once the
    busy processes had a lower priority.
    """
    with suppress(OSError):
        os.nice(COMPUTE_NICENESS)  # on Linux: the calling thread only


def is_demoted(paths: SystemPaths = DEFAULT_PATHS) -> bool:
    """Whether Android keeps this process off the big cores: it is several times slower and delays all other phones."""
    permitted = cpu.allowed(paths)
    return permitted is not None and not set(permitted) & set(cpu.big_cores(paths))


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
