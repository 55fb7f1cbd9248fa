"""Which cores compute, where little ones might help: by measurement, on the network itself, before training starts.

Work is dealt out evenly, so a little core may hold up the big ones: whether it pays depends on phone and network.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from phone_agent.backends.cpu import CpuBackend
from phone_agent.device import affinity
from phone_agent.device.affinity import Crew
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory import DoesNotFitError
from phone_agent.nn.plan.options import Options

log = logging.getLogger("phone_agent")
STEP_S = 0.15  # about so long is a step that is timed
MOST_IMAGES = 16
BUDGET_S = 2.0
FASTER = 1.1  # than the big cores alone: more cores make more heat
RUNS = 3


def choose(crews: Sequence[Crew], graph: Graph, state: State, batch: int, options: Options) -> Crew:
    """The fastest; the first where none is by much, or where trying them would take too long. Leaves the state as it
    was, but for the gradients; the calling thread, on the chosen cores."""
    statistics = state.statistics.copy()
    began = time.monotonic()

    def seconds(crew: Crew, images: int, runs: int) -> float:
        affinity.compute_on(crew)
        try:
            return _seconds(graph, state, images, replace(options, threads=crew.threads), runs)
        except DoesNotFitError:  # more threads take more memory
            return math.inf

    images = min(max(1, int(STEP_S / seconds(crews[0], 1, 1))), MOST_IMAGES, batch)
    chosen = fastest(crews, lambda crew: seconds(crew, images, RUNS), lambda: time.monotonic() - began < BUDGET_S)
    state.statistics[...] = statistics
    state.gradients[...] = 0
    affinity.compute_on(chosen)
    return chosen


def fastest(crews: Sequence[Crew], measure: Callable[[Crew], float], in_time: Callable[[], bool]) -> Crew:
    times: dict[Crew, float] = {}
    for crew in crews:
        if times and not in_time():
            break
        times[crew] = measure(crew)
        log.info("%d threads on cores %s: %.4f s", crew.threads, ",".join(map(str, crew.cores)), times[crew])
    best = min(times, key=lambda crew: times[crew])
    return best if times[crews[0]] >= FASTER * times[best] else crews[0]


def _seconds(graph: Graph, state: State, images: int, options: Options, runs: int) -> float:
    """The best of some runs, after one that touches the memory."""
    executable = CpuBackend().compile(graph, state, images, options)
    batch, labels = np.zeros((images, *graph.shape), np.float32), np.zeros(images, np.int64)
    times = []
    for _ in range(runs + 1):
        started = time.monotonic()
        executable.loss_and_gradients(batch, labels, 1.0)
        times.append(time.monotonic() - started)
    executable.close()
    return min(times[1:])
