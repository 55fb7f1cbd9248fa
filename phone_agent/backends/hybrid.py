"""Hybrid backend: the CPU and the GPU of a phone each compute a part of every batch, at the same time.

Each part is weighted by its images, b_i / b, so the gradients add up to that of the whole batch. A batch normalization
sees only its part, as on two phones, and has its own running statistics; the state holds the merged statistics, as
those of several phones are merged for evaluation and checkpoints. Each part has its own dropout mask.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.contract import rng
from phone_agent.contract.errors import InternalError
from phone_agent.device.step_timer import time_steps
from phone_agent.nn.executable import Backend, Executable, GradientRequest, GradientsReady, ValuesNeeded
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options

Array = NDArray[Any]
PROBE_BATCH = 8
PROBE_REPEATS = 2
GPU_RNG_STREAM = 5  # see train.loop for the other streams
MEAN, VARIANCE = ".running_mean", ".running_var"


class HybridBackend:
    def __init__(self, cpu: Backend, gpu: Backend) -> None:
        self._cpu, self._gpu = cpu, gpu

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        """CPU memory: the GPU has its own gradients and copies what it reads."""
        return self._cpu.array(count, dtype)

    def compile(
        self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()
    ) -> HybridExecutable:
        share = options.gpu_share
        if share is None:
            share = self._measure_gpu_share(graph, state, min(batch, PROBE_BATCH), options)
        return HybridExecutable(self._cpu, self._gpu, share, (graph, state, batch, options, also))

    def _measure_gpu_share(self, graph: Graph, state: State, images: int, options: Options) -> float:
        """The GPU share, from the time that each takes alone for the same images."""
        cpu, gpu = (_measure_step(each, graph, state, images, options) for each in (self._cpu, self._gpu))
        return cpu / (cpu + gpu)


def _measure_step(backend: Backend, graph: Graph, state: State, images: int, options: Options) -> float:
    """The best of several steps after a warm-up. Does not change the state."""
    scratch = _with_own_gradients(state, backend)
    executable = backend.compile(graph, scratch, images, options)
    batch, labels = np.zeros((images, *graph.shape), np.float32), np.zeros(images, np.int64)
    return min(time_steps(lambda: executable.loss_and_gradients(batch, labels, 1.0), PROBE_REPEATS))


def _with_own_gradients(state: State, backend: Backend) -> State:
    """A state that shares the values, with its own gradients and statistics."""
    other = copy.copy(state)
    other.gradients = backend.array(state.gradients.size, state.gradients.dtype)
    other.statistics = state.statistics.copy()
    return other


@dataclass(frozen=True)
class BatchSplit:
    """How many images of a batch each computes."""

    cpu: int
    gpu: int

    @classmethod
    def of(cls, batch: int, share: float, smallest: int = 1) -> BatchSplit:
        """As close to the share as possible. Each computes at least `smallest` images, or none."""
        counts = (0, *range(smallest, batch - smallest + 1), batch)
        gpu = min(counts, key=lambda count: abs(count - batch * share))
        return cls(batch - gpu, gpu)


class HybridExecutable(Executable):
    def __init__(
        self,
        cpu: Backend,
        gpu: Backend,
        share: float,
        compiled: tuple[Graph, State, int, Options, Sequence[int]],
    ) -> None:
        graph, state, batch, options, also = compiled
        self.gpu_share = share
        self._state = state
        self._smallest = graph.min_batch
        self._splits = self._split({batch, *also})
        self._cpu_state, self._gpu_state = copy.copy(state), _with_own_gradients(state, gpu)
        self._cpu_state.statistics = state.statistics.copy()
        self._merged = state.statistics.copy()
        splits = self._splits.values()
        self._cpu = _compile(cpu, graph, self._cpu_state, options, {each.cpu for each in splits})
        self._gpu = _compile(gpu, graph, self._gpu_state, options, {each.gpu for each in splits})
        self._gpu_thread = ThreadPoolExecutor(1, "gpu")

    def prepare(self, sizes: Collection[int]) -> None:
        splits = self._split(sizes)
        self._splits |= splits
        for executable, counts in (
            (self._cpu, {each.cpu for each in splits.values()}),
            (self._gpu, {each.gpu for each in splits.values()}),
        ):
            if executable is not None and counts - {0}:
                executable.prepare(counts - {0})

    def _split(self, sizes: Collection[int]) -> dict[int, BatchSplit]:
        return {size: BatchSplit.of(size, self.gpu_share, self._smallest) for size in sizes}

    def forward(self, images: Array) -> Array:
        """On the device with the larger part, with the current statistics of the state."""
        on_gpu = self._gpu is not None and (self._cpu is None or self.gpu_share > 0.5)
        executable, state = (self._gpu, self._gpu_state) if on_gpu else (self._cpu, self._cpu_state)
        own = state.statistics.copy()
        state.statistics[...] = self._state.statistics
        try:
            return _require(executable).forward(images)
        finally:
            state.statistics[...] = own

    def compute_gradients(self, request: GradientRequest) -> float:
        self._load_statistics()
        images, labels, ready, need = request.images, request.labels, request.ready, request.need
        batch, split = len(images), self._splits[len(images)]
        shares = split.cpu / batch, split.gpu / batch
        merger = _GradientMerger(
            self._state.gradients, self._gpu_state.gradients, accumulate=split.cpu > 0 or request.accumulate
        )

        def on_cpu(ready: GradientsReady | None, need: ValuesNeeded | None) -> float:
            part = slice(0, split.cpu)
            weighted = request.weight * shares[0]
            own = replace(request, images=images[part], labels=labels[part], weight=weighted, ready=ready, need=need)
            return _require(self._cpu).compute_gradients(own)

        def on_gpu(ready: GradientsReady | None, need: ValuesNeeded | None) -> float:
            part = slice(split.cpu, batch)
            weighted, draw = request.weight * shares[1], int(rng.bits((request.draw, GPU_RNG_STREAM), 1)[0])
            own = GradientRequest(images[part], labels[part], weighted, draw, ready=ready, need=need)
            return _require(self._gpu).compute_gradients(own)

        if not split.gpu:
            losses = on_cpu(ready, need), 0.0
        elif not split.cpu:
            losses = 0.0, merger.run_gpu(on_gpu, ready, need)
        else:
            losses = merger.run_both(on_cpu, on_gpu, ready, need, self._gpu_thread)
        self._store_statistics(shares)
        return float(np.dot(shares, losses))

    def _load_statistics(self) -> None:
        """If the statistics of the state were replaced, as by a checkpoint, both parts continue from those."""
        if not np.array_equal(self._state.statistics, self._merged):
            self._cpu_state.statistics[...] = self._gpu_state.statistics[...] = self._state.statistics

    def _store_statistics(self, shares: Sequence[float]) -> None:
        self._merged = merge_statistics(self._state, (self._cpu_state.statistics, self._gpu_state.statistics), shares)
        self._state.statistics[...] = self._merged


def _compile(
    backend: Backend, graph: Graph, state: State, options: Options, sizes: Collection[int]
) -> Executable | None:
    """Compile for all these sizes. None: this device computes nothing.

    The capacity is at least that of the graph: a batch that is too small to be split is computed by one device.
    """
    largest = max(sizes)
    if not largest:
        return None
    capacity = max(largest, graph.min_capacity)
    return backend.compile(graph, state, capacity, options, sorted({*sizes} - {0, capacity}))


def _require(executable: Executable | None) -> Executable:
    if executable is None:
        raise InternalError("part of a batch was assigned to a device that no network was compiled for")
    return executable


def merge_statistics(state: State, parts: Sequence[NDArray[Any]], shares: Sequence[float]) -> NDArray[Any]:
    """Running statistics of the whole batch from those of its parts.

    Means and variances are averaged by share; the variance of the means is added to the variances.
    """
    whole = sum((np.float32(share) * part for share, part in zip(shares, parts, strict=True)), np.zeros_like(parts[0]))
    between = np.zeros_like(whole)
    views, between_views = state.statistics_packing.views(whole), state.statistics_packing.views(between)
    for share, part in zip(shares, parts, strict=True):
        for name, mean in state.statistics_packing.views(part).items():
            if name.endswith(MEAN):
                variance = between_views[name.removesuffix(MEAN) + VARIANCE]
                variance += np.float32(share) * (mean - views[name]) ** 2
    return whole + between


Run = Callable[[GradientsReady | None, ValuesNeeded | None], float]


class _GradientMerger:
    """Adds the gradients of the GPU to those of the CPU, bucket by bucket. Calls back only on the training thread."""

    def __init__(self, gradients: Array, gpu_gradients: Array, *, accumulate: bool) -> None:
        self._gradients, self._gpu_gradients, self._accumulate = gradients, gpu_gradients, accumulate
        self._complete = _BucketEvents()  # gradient buckets that the GPU has completed
        self._available = _BucketEvents()  # value buckets that may be read

    def run_gpu(self, run: Run, ready: GradientsReady | None, need: ValuesNeeded | None) -> float:
        """The GPU computes the whole batch."""

        def merge_bucket(start: int, end: int) -> None:
            self._merge(start, end)
            if ready is not None:
                ready(start, end)

        loss = run(merge_bucket if ready is not None else None, need)
        if ready is None:
            self._merge(0, len(self._gradients))
        return loss

    def run_both(
        self, cpu: Run, gpu: Run, ready: GradientsReady | None, need: ValuesNeeded | None, gpu_thread: Executor
    ) -> tuple[float, float]:
        def release_values(start: int, end: int) -> None:
            if need is not None:
                need(start, end)
            self._available.set(start)

        def merge_bucket(start: int, end: int) -> None:
            self._complete.wait(start)
            if running.done():
                running.result()  # raises the error of the GPU
            self._merge(start, end)
            if ready is not None:
                ready(start, end)

        signal = (lambda start, _end: self._complete.set(start)) if ready is not None else None
        wait = (lambda start, _end: self._available.wait(start)) if need is not None else None
        running = gpu_thread.submit(gpu, signal, wait)
        running.add_done_callback(lambda _: self._complete.set_all())
        try:
            loss = cpu(merge_bucket if ready is not None else None, release_values if need is not None else None)
        finally:
            self._available.set_all()  # the GPU must not wait for a CPU that failed
            gpu_loss = running.result()
        if ready is None:
            self._merge(0, len(self._gradients))
        return loss, gpu_loss

    def _merge(self, start: int, end: int) -> None:
        if self._accumulate:
            self._gradients[start:end] += self._gpu_gradients[start:end]
        else:
            self._gradients[start:end] = self._gpu_gradients[start:end]


class _BucketEvents:
    """One event per bucket, identified by its start; or all at once."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._set: set[int] = set()
        self._all = False

    def set(self, start: int) -> None:
        with self._changed:
            self._set.add(start)
            self._changed.notify_all()

    def set_all(self) -> None:
        with self._changed:
            self._all = True
            self._changed.notify_all()

    def wait(self, start: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._all or start in self._set)
