"""Steps to repeat, and how long they take. The images are noise: the time does not depend on what is on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.backends import get_backend
from phone_agent.bench.compute import RULES, TrainingStep
from phone_agent.device.isolated import Gate, Work
from phone_agent.device.memory import peak_bytes
from phone_agent.device.step_timer import Step, time_steps
from phone_agent.models import CIFAR
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.train.optimizers import build_optimizer

LABELS = 10  # CIFAR-10's, whatever the number of scores


@dataclass(frozen=True)
class Workload:
    """Where a network runs."""

    graph: Graph
    backend: str
    threads: int


@dataclass(frozen=True)
class Compiled:
    executable: Executable
    state: State
    images: NDArray[Any]
    labels: NDArray[Any]


@dataclass(frozen=True)
class Repeats:
    """What repeating a step showed."""

    count: int
    median_s: float
    best_s: float
    wall_s: float
    cpu_s: float
    resident_bytes: int  # of its process, at the highest so far


def training(workload: Workload, batch: int) -> Step:
    """Forward, backward and the update of all values."""
    made = compiled(workload, batch)
    optimizer = build_optimizer(RULES, made.state, threads=workload.threads)
    return TrainingStep(made.executable, optimizer, made.images, made.labels)


def inference(workload: Workload, batch: int) -> Step:
    made = compiled(workload, batch)

    def step() -> None:
        made.executable.forward(made.images)

    return step


def compiled(workload: Workload, batch: int) -> Compiled:
    """All in memory that the backend computes in: nothing is copied for it."""
    computing, state = get_backend(workload.backend), _state(workload)
    numbers = np.random.default_rng(0)
    images = computing.array(batch * prod(CIFAR)).reshape(batch, *CIFAR)
    images[...] = numbers.standard_normal(images.shape, dtype=np.float32)
    labels = numbers.integers(0, min(LABELS, workload.graph.classes), batch).astype(np.int32)
    executable = computing.compile(workload.graph, state, batch, Options(threads=workload.threads))
    return Compiled(executable, state, images, labels)


@lru_cache(maxsize=1)
def _state(workload: Workload) -> State:
    """Made once for all batches that are tried: drawing a large network's values takes longer than a step."""
    state = State(workload.graph, seed=1)
    state.move(get_backend(workload.backend).array)
    return state


def repeating(prepare: Callable[[], Step], seconds: float, least: int = 2) -> Work:
    """After one that touches the memory, for so long and at least so often, once the gate opens."""

    def work(gate: Gate) -> dict[str, Any]:
        step = prepare()
        step()
        gate()
        return asdict(repeat(step, seconds, least))

    return work


def repeat(step: Step, seconds: float, least: int = 2) -> Repeats:
    began, cpu_began = time.perf_counter(), time.process_time()
    step_s = time_steps(step, least, min_seconds=seconds, warm_up=0)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return Repeats(len(step_s), median(step_s), min(step_s), wall, cpu, peak_bytes())


def fitting_batch(workload: Workload, most: int, step_s: float) -> int:
    """The largest of `most`, its half, its quarter… whose step takes `step_s` at most: tried out, from one image up."""
    batch = 1
    while batch < most:
        step = training(workload, batch)
        step()
        larger = largest_half(most, repeat(step, 0.02, 2).best_s / batch, step_s)
        if larger <= batch:
            break
        batch = larger
    return batch


def largest_half(most: int, image_s: float, step_s: float) -> int:
    while most > 1 and most * image_s > step_s:
        most //= 2
    return most
