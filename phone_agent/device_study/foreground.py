"""How training and an application in the foreground slow each other down.

The application is made up: a process for each core that computes, each finding the primes below 20 000 again and
again, by a sieve in plain Python. Training gives way to it, as a run does (niceness 10), or does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

from phone_agent import models
from phone_agent.contract.device_study import (
    EQUAL_PRIORITY,
    FOREGROUND_ALONE,
    TRAINING_ALONE,
    TRAINING_GIVES_WAY,
    Contest,
    StudyRequest,
)
from phone_agent.device import affinity
from phone_agent.device.isolated import IsolatedError, IsolatedProcess, Work, run_isolated
from phone_agent.device.step_timer import Step
from phone_agent.device_study import steps
from phone_agent.device_study.cases import Means

NETWORK = "mobilenet_reduced"
BELOW = 20_000
PRIMES_BELOW_20_000 = 2262


def contests(request: StudyRequest, means: Means) -> Iterator[Contest]:
    place = steps.Place(models.build(NETWORK), "cpu", means.threads)
    batch = run_isolated(
        lambda: steps.fitting_batch(place, request.batch, means.pace.contest_s / 20), means.pace.case_limit_s
    )
    yield _contest(FOREGROUND_ALONE, place, means, foreground=True)
    yield _contest(TRAINING_ALONE, place, means, foreground=False, batch=batch)
    yield _contest(TRAINING_GIVES_WAY, place, means, foreground=True, batch=batch, gives_way=True)
    yield _contest(EQUAL_PRIORITY, place, means, foreground=True, batch=batch)


def _contest(
    situation: str, place: steps.Place, means: Means, *, foreground: bool, batch: int = 0, gives_way: bool = False
) -> Contest:
    """`batch` 0: nobody trains."""
    seconds = means.pace.contest_s
    works = [steps.repeating(lambda: sieve, seconds)] * (means.threads if foreground else 0)
    if batch:
        works.append(_training(place, batch, seconds, gives_way=gives_way))
    try:
        found = _together(works, means.pace.case_limit_s)
    except IsolatedError as error:
        return Contest(situation, place.graph.name, None, None, str(error))
    runners = found[:-1] if batch else found
    rate = sum(each.count / each.wall_s for each in runners) if runners else None
    return Contest(situation, place.graph.name, rate, found[-1].median_s if batch else None)


def _together(works: list[Work], limit_s: float) -> list[steps.Repeats]:
    """All start when the last is ready, and run for the same time."""
    with ExitStack() as stack:
        processes = [stack.enter_context(IsolatedProcess.fork(work, limit_s)) for work in works]
        for process in processes:
            process.wait_until_ready()
        for process in processes:
            process.release()
        return [steps.Repeats(**process.result()) for process in processes]


def _training(place: steps.Place, batch: int, seconds: float, *, gives_way: bool) -> Work:
    def prepare() -> Step:
        if gives_way:
            os.nice(affinity.COMPUTE_NICENESS)
        return steps.training(place, batch)

    return steps.repeating(prepare, seconds)


def sieve() -> None:
    is_prime = bytearray([1]) * BELOW
    is_prime[:2] = b"\0\0"
    for number in range(2, int(BELOW**0.5) + 1):
        if is_prime[number]:
            for multiple in range(number * number, BELOW, number):
                is_prime[multiple] = 0
    if sum(is_prime) != PRIMES_BELOW_20_000:
        raise IsolatedError("the foreground load counted its primes wrong")
