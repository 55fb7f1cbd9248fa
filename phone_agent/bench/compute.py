"""`clusterctl bench compute`: training steps of one network on this machine."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from math import isfinite, prod
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.bench.kernels import peak_gflops
from phone_agent.contract.choices import BACKENDS, MAX_THREADS
from phone_agent.contract.errors import AgentError, BadRequestError, ErrorCode
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.core.thread_pool import ThreadPool
from phone_agent.device.memory import available_mb, peak_bytes
from phone_agent.device.step_timer import time_steps
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.nn.summary import training_flops
from phone_agent.train.optimizers import Optimizer, build_optimizer

RULES = OptimizerSpec(learning_rate=1e-3, momentum=0.9, weight_decay=1e-4, decay_all=True)
MAX_BATCH = 65_536


class FailedError(AgentError):
    """The measurement failed."""

    code = ErrorCode.MEASUREMENT_FAILED


@dataclass(frozen=True)
class ComputeRequest:
    model: str
    batch: int
    threads: int
    steps: int
    backend: str = "cpu"
    isa: str | None = None
    memory_bytes: int | None = None
    winograd: bool = True
    half: bool = False

    def check(self) -> None:
        if self.backend not in BACKENDS:
            raise BadRequestError(f"unknown backend '{self.backend}'; choose from: {', '.join(BACKENDS)}")
        if not 1 <= self.threads <= MAX_THREADS:
            raise BadRequestError(f"{self.threads} threads: must be between 1 and {MAX_THREADS}")
        if not 1 <= self.batch <= MAX_BATCH:
            raise BadRequestError(f"batch size {self.batch}: must be between 1 and {MAX_BATCH}")
        if self.steps < 1:
            raise BadRequestError(f"{self.steps} steps: at least 1 is needed")


@dataclass(frozen=True)
class OperationTime:
    """Time of one kind of operation within a step."""

    kind: str
    direction: str
    seconds: float
    fraction: float
    gflops: float | None
    gbs: float | None


@dataclass(frozen=True)
class ComputeResult:
    request: ComputeRequest
    isa: str
    step_s: float  # median
    best_s: float
    loss: float
    peak_rss_mb: float
    planned_mb: float | None  # estimated before anything ran
    gflops: float  # of the best step, by the direct method
    peak_gflops: float | None
    breakdown: tuple[OperationTime, ...]

    @property
    def images_per_s(self) -> float:
        return self.request.batch / self.step_s

    @property
    def peak_fraction(self) -> float | None:
        return self.gflops / self.peak_gflops if self.peak_gflops else None


def measure_compute(request: ComputeRequest) -> ComputeResult:
    request.check()
    graph = models.build(request.model)
    executable, state, planned = _compiled(graph, request)
    optimizer = build_optimizer(RULES, state, backend=request.backend, threads=request.threads, isa=request.isa)
    images, labels = _sample(graph, request)
    step = TrainingStep(executable, optimizer, images, labels)
    seconds = time_steps(step, request.steps)
    rss = peak_bytes() / 1e6
    isa, peak = _machine(request)
    best = min(seconds)
    return ComputeResult(
        request, isa, median(seconds), best, step.loss, rss, planned,
        training_flops(graph) * request.batch / best / 1e9, peak, breakdown(executable, images, labels),
    )  # fmt: skip


def breakdown(
    executable: Executable, images: NDArray[Any], labels: NDArray[Any], runs: int = 3
) -> tuple[OperationTime, ...]:
    """Time of a step by kind of operation, largest first. Empty if the backend has no profiler."""
    profile = getattr(executable, "profile", None)
    return _by_kind(profile(images, labels, runs=runs)) if profile else ()


def _by_kind(times: Iterable[Any]) -> tuple[OperationTime, ...]:
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for one in times:
        groups[one.kind, one.direction].append(one)
    total = sum(one.seconds for group in groups.values() for one in group) or 1.0
    operations = [_operation_time(*key, group, total) for key, group in groups.items()]
    return tuple(sorted(operations, key=lambda operation: -operation.seconds))


def _operation_time(kind: str, direction: str, group: list[Any], total: float) -> OperationTime:
    seconds = sum(one.seconds for one in group)
    flops, moved = sum(one.flops for one in group), sum(one.bytes for one in group)
    rate = 1e9 * seconds or 1.0
    return OperationTime(kind, direction, seconds, seconds / total, flops / rate or None, moved / rate or None)


def _compiled(graph: Graph, request: ComputeRequest) -> tuple[Executable, State, float | None]:
    """The budget is the requested memory, else the free memory: a batch that is too large is rejected up front."""
    left = available_mb()
    budget = request.memory_bytes or (left * 1_000_000 if left else None)
    options = Options(
        threads=request.threads,
        isa=request.isa,
        memory_bytes=request.memory_bytes,
        winograd=request.winograd,
        half=request.half,
    )
    try:
        state, backend = State(graph, seed=1), get_backend(request.backend)
        state.move(backend.array)
        executable = backend.compile(graph, state, request.batch, options)
    except MemoryError:  # not even the addresses for it
        raise _refusal(graph, request.batch, options, budget) from None
    memory = getattr(executable, "memory", None)
    if memory is None:
        return executable, state, None
    if budget and memory.total > budget:  # nothing was touched yet, so it took no memory so far
        raise _refusal(graph, request.batch, options, budget)
    return executable, state, memory.total / 1e6


def _refusal(graph: Graph, batch: int, options: Options, budget: int | None) -> AgentError:
    from phone_agent.nn.plan.memory_plan import does_not_fit, estimate_memory

    if budget is None:
        return BadRequestError(
            f"{graph.name}: a batch of {batch} needs more memory than is available; use a smaller --batch"
        )
    return does_not_fit(graph, batch, estimate_memory(graph, batch, options).total, budget, options)


class TrainingStep:
    """Forward, backward and the update of all weights, always with the same batch."""

    def __init__(
        self, executable: Executable, optimizer: Optimizer, images: NDArray[Any], labels: NDArray[Any]
    ) -> None:
        self._executable, self._optimizer, self._images, self._labels = executable, optimizer, images, labels
        self._steps = 0
        self.loss = 0.0

    def __call__(self) -> None:
        self.loss = self._executable.loss_and_gradients(self._images, self._labels, 1.0, draw=self._steps)
        self._steps += 1
        self._optimizer.update(slice(None), RULES.learning_rate, self._steps)
        if not isfinite(self.loss):
            raise FailedError(f"the loss of step {self._steps} is {self.loss}: the computation is wrong")


def _machine(request: ComputeRequest) -> tuple[str, float | None]:
    if request.backend != "cpu":
        return "numpy" if request.backend == "reference" else request.backend, None
    with closing(ThreadPool(request.threads, request.isa)) as pool:
        return pool.isa, peak_gflops(pool) or None


def _sample(graph: Graph, request: ComputeRequest) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Random images, in memory of the backend as in training: the step time does not depend on their content."""
    numbers, batch = np.random.default_rng(0), request.batch
    images = get_backend(request.backend).array(batch * prod(graph.shape)).reshape(batch, *graph.shape)
    numbers.standard_normal(out=images, dtype=np.float32)
    return images, numbers.integers(0, graph.classes, batch).astype(np.int32)


def usable_threads() -> int:
    return min(len(os.sched_getaffinity(0)), MAX_THREADS)
