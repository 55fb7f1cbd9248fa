"""How training and a foreground application slow each other down.

The application is synthetic: one process per compute core, each repeatedly finding the primes below 20 000 with a
sieve in plain Python. Training runs at low priority (niceness 10), as in a real run, or at equal priority.
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
    TRAINING_LOW_PRIORITY,
    Interference,
    StudyRequest,
)
from phone_agent.device import affinity
from phone_agent.device.isolated import IsolatedError, IsolatedProcess, Work, run_isolated
from phone_agent.device.step_timer import Step
from phone_agent.device_study import steps
from phone_agent.device_study.cases import StudyContext

NETWORK = "mobilenet_reduced"
LIMIT = 20_000
PRIME_COUNT = 2262


def measure_interference(request: StudyRequest, context: StudyContext) -> Iterator[Interference]:
    workload = steps.Workload(models.build(NETWORK), "cpu", context.threads)
    batch = run_isolated(
        lambda: steps.fitting_batch(workload, request.batch, context.limits.interference_s / 20),
        context.limits.case_limit_s,
    )
    yield _interference(FOREGROUND_ALONE, workload, context, foreground=True)
    yield _interference(TRAINING_ALONE, workload, context, foreground=False, batch=batch)
    yield _interference(TRAINING_LOW_PRIORITY, workload, context, foreground=True, batch=batch, low_priority=True)
    yield _interference(EQUAL_PRIORITY, workload, context, foreground=True, batch=batch)


def _interference(
    situation: str,
    workload: steps.Workload,
    context: StudyContext,
    *,
    foreground: bool,
    batch: int = 0,
    low_priority: bool = False,
) -> Interference:
    """`batch` 0: no training."""
    seconds = context.limits.interference_s
    works = [steps.repeating(lambda: sieve, seconds)] * (context.threads if foreground else 0)
    if batch:
        works.append(_training(workload, batch, seconds, low_priority=low_priority))
    try:
        found = _run_concurrently(works, context.limits.case_limit_s)
    except IsolatedError as error:
        return Interference(situation, workload.graph.name, None, None, str(error))
    runners = found[:-1] if batch else found
    rate = sum(each.count / each.wall_s for each in runners) if runners else None
    return Interference(situation, workload.graph.name, rate, found[-1].median_s if batch else None)


def _run_concurrently(works: list[Work], limit_s: float) -> list[steps.Repeats]:
    """All start when the last one is ready, and run for the same time."""
    with ExitStack() as stack:
        processes = [stack.enter_context(IsolatedProcess.fork(work, limit_s)) for work in works]
        for process in processes:
            process.wait_until_ready()
        for process in processes:
            process.release()
        return [steps.Repeats(**process.result()) for process in processes]


def _training(workload: steps.Workload, batch: int, seconds: float, *, low_priority: bool) -> Work:
    def prepare() -> Step:
        if low_priority:
            os.nice(affinity.COMPUTE_NICENESS)
        return steps.training(workload, batch)

    return steps.repeating(prepare, seconds)


def sieve() -> None:
    is_prime = bytearray([1]) * LIMIT
    is_prime[:2] = b"\0\0"
    for number in range(2, int(LIMIT**0.5) + 1):
        if is_prime[number]:
            for multiple in range(number * number, LIMIT, number):
                is_prime[multiple] = 0
    if sum(is_prime) != PRIME_COUNT:
        raise IsolatedError("the foreground load found a wrong number of primes")
