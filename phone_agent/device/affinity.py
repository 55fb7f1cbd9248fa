"""Which cores compute, and with how many threads. To be called before numpy is imported: its BLAS asks once."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.device import cpu
from phone_agent.device.roots import REAL, Roots

COMPUTING_NICENESS = 10
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_beside: set[int] = set()  # the cores for what does not compute
_permitted: dict[tuple[int, ...], tuple[int, ...]] = {}  # cores there were to choose from, by what may be chosen


@dataclass(frozen=True)
class CoreSet:
    """Cores that compute together, a thread on each."""

    cores: tuple[int, ...]

    @property
    def threads(self) -> int:
        return min(len(self.cores), MAX_THREADS)  # a server may have more than the core runs


def core_sets(roots: Roots = REAL) -> list[CoreSet]:
    """Those that are worth trying, the likeliest first: the big cores; all that are permitted, where that is more."""
    permitted = _all_permitted(roots)
    big = cpu.big_among(permitted, roots)
    return [CoreSet(big), *([CoreSet(permitted)] if len(permitted) > len(big) else [])]


def _all_permitted(roots: Roots) -> tuple[int, ...]:
    """By Android. Once this process has chosen among them, the kernel tells of the choice alone; what it tells besides
    is Android's doing again."""
    told = cpu.allowed(roots) or cpu.present(roots)
    return _permitted.get(told, told)


def compute_on(core_set: CoreSet) -> None:
    """The calling thread, and those it starts from now on."""
    _pin(core_set.cores)


def use_big_cores(threads: int = 0, roots: Roots = REAL) -> int:
    """Pins this process to the big cores; `threads` 0 means one for each. Returns the number of threads.

    More threads than there are big cores have all that are permitted: on the big ones alone they would take turns.
    """
    big, *others = core_sets(roots)
    every = others[-1] if others else big
    count = threads or big.threads
    for name in BLAS_THREADS:
        os.environ[name] = str(count)
    _permitted.clear()
    _permitted.update(dict.fromkeys((big.cores, every.cores), every.cores))
    _beside.clear()
    _beside.update(set(every.cores) - set(big.cores) or every.cores)
    compute_on(big if count <= len(big.cores) else every)
    return count


def use_little_cores() -> None:
    """For the calling thread: one that mostly waits need not share a big core with those that compute.

    Where all cores are of one kind, or only one kind is permitted, it may use all of them.
    """
    _pin(_beside)


def _pin(cores: Collection[int]) -> None:
    with suppress(OSError, AttributeError):  # denied, or not in this Python: slower, not wrong
        os.sched_setaffinity(0, cores)  # of the calling thread, on Linux


def give_way() -> None:
    """From here on this thread, and those it starts, let others go first.

    The thread that carries gradients waits for each piece. With every core busy it would then wait for its turn too:
    beside eight busy processes on two cores, short naps ended 2.2 ms late on average, and 0.35 ms late once those
    gave way.
    """
    with suppress(OSError):
        os.nice(COMPUTING_NICENESS)  # of the calling thread only, on Linux


def is_demoted(roots: Roots = REAL) -> bool:
    """Android keeps this process off the big cores: several times slower, and the slowest phone sets the pace."""
    permitted = cpu.allowed(roots)
    return permitted is not None and not set(permitted) & set(cpu.big_cores(roots))
