"""Core selection: measures, on the network itself and before training starts, whether little cores help.

Work is split evenly between threads, so a little core may slow down the big ones. Whether it pays depends on the phone
and on the network.
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
from phone_agent.device.affinity import CoreSet
from phone_agent.device.step_timer import time_steps
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import DoesNotFitError
from phone_agent.nn.plan.options import Options

log = logging.getLogger("phone_agent")
STEP_S = 0.15  # target duration of a timed step
MAX_IMAGES = 16
BUDGET_S = 2.0
MIN_SPEED_UP = 1.1  # over the big cores alone: more cores produce more heat
RUNS = 3


def select_core_set(core_sets: Sequence[CoreSet], graph: Graph, state: State, batch: int, options: Options) -> CoreSet:
    """The fastest; the first unless another is clearly faster, or if measuring takes too long. Pins the calling thread
    to the selected cores. Of the state, only the gradients change."""
    statistics = state.statistics.copy()
    began = time.monotonic()

    def seconds(core_set: CoreSet, images: int, runs: int) -> float:
        affinity.pin_to_core_set(core_set)
        try:
            return _seconds(graph, state, images, replace(options, threads=core_set.threads), runs)
        except DoesNotFitError:  # more threads need more memory
            return math.inf

    images = min(max(1, int(STEP_S / seconds(core_sets[0], 1, 1))), MAX_IMAGES, batch)
    chosen = fastest(
        core_sets,
        lambda core_set: seconds(core_set, images, RUNS),
        lambda: time.monotonic() - began < BUDGET_S,
    )
    state.statistics[...] = statistics
    state.gradients[...] = 0
    affinity.pin_to_core_set(chosen)
    return chosen


def fastest(core_sets: Sequence[CoreSet], measure: Callable[[CoreSet], float], in_time: Callable[[], bool]) -> CoreSet:
    times: dict[CoreSet, float] = {}
    for core_set in core_sets:
        if times and not in_time():
            break
        times[core_set] = measure(core_set)
        log.info(
            "%d threads on cores %s: %.4f s", core_set.threads, ",".join(map(str, core_set.cores)), times[core_set]
        )
    best = min(times, key=lambda core_set: times[core_set])
    return best if times[core_sets[0]] >= MIN_SPEED_UP * times[best] else core_sets[0]


def _seconds(graph: Graph, state: State, images: int, options: Options, runs: int) -> float:
    """The fastest of `runs` steps."""
    executable = CpuBackend().compile(graph, state, images, options)
    batch, labels = np.zeros((images, *graph.shape), np.float32), np.zeros(images, np.int64)
    seconds = time_steps(lambda: executable.loss_and_gradients(batch, labels, 1.0), runs)
    executable.close()
    return min(seconds)
