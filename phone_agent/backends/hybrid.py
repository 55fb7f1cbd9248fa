"""Processor and GPU of one phone as one: each computes its part of every batch, at the same time.

A part counts by its images, b_i / b, so that the sum of both gradients is the batch's own. A normalisation sees its own
part only, as it does on two phones, and keeps running statistics of its own; the state's are both combined, as those of
two phones are before they are judged or saved. Dropout draws for each part.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.contract import rng
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.executable import Backend, Executable, GradientRequest, GradientsReady, ValuesNeeded
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options

Array = NDArray[Any]
PROBE_BATCH = 8
PROBE_REPEATS = 2
GPU_RNG_STREAM = 5  # stream of random numbers; see train.loop for the others
MEAN, VARIANCE = ".running_mean", ".running_var"


class HybridBackend:
    def __init__(self, cpu: Backend, gpu: Backend) -> None:
        self._cpu, self._gpu = cpu, gpu

    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        """The processor's: the GPU's gradients are its own, and what it reads it gets a copy of."""
        return self._cpu.array(count, dtype)

    def compile(
        self, graph: Graph, state: State, batch: int, options: Options, also: Sequence[int] = ()
    ) -> HybridExecutable:
        share = options.gpu_share
        if share is None:
            share = self._measured_share(graph, state, min(batch, PROBE_BATCH), options)
        return HybridExecutable(self._cpu, self._gpu, share, (graph, state, batch, options, also))

    def _measured_share(self, graph: Graph, state: State, images: int, options: Options) -> float:
        """Of the GPU, by the time each takes alone for the same images."""
        cpu, gpu = (_seconds(each, graph, state, images, options) for each in (self._cpu, self._gpu))
        return cpu / (cpu + gpu)


def _seconds(backend: Backend, graph: Graph, state: State, images: int, options: Options) -> float:
    """The best of some steps, after one that warms up. Leaves the state as it was, but for its gradients."""
    scratch = _beside(state, backend)
    executable = backend.compile(graph, scratch, images, options)
    batch, labels = np.zeros((images, *graph.shape), np.float32), np.zeros(images, np.int64)
    times = []
    for _ in range(PROBE_REPEATS + 1):
        started = time.monotonic()
        executable.loss_and_gradients(batch, labels, 1.0)
        times.append(time.monotonic() - started)
    return min(times[1:])


def _beside(state: State, backend: Backend) -> State:
    """With the same values, and gradients and statistics of its own."""
    another = copy.copy(state)
    another.gradients = backend.array(state.gradients.size, state.gradients.dtype)
    another.statistics = state.statistics.copy()
    return another


@dataclass(frozen=True)
class BatchSplit:
    """How many images of a batch each computes."""

    cpu: int
    gpu: int

    @classmethod
    def of(cls, batch: int, share: float) -> BatchSplit:
        gpu = min(batch, round(batch * share))
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
        self.share = share
        self._state = state
        self._splits = {size: BatchSplit.of(size, share) for size in (batch, *also)}
        self._own, self._other = copy.copy(state), _beside(state, gpu)
        self._own.statistics = state.statistics.copy()
        self._combined = state.statistics.copy()
        splits = self._splits.values()
        self._cpu = _compiled(cpu, graph, self._own, options, [each.cpu for each in splits])
        self._gpu = _compiled(gpu, graph, self._other, options, [each.gpu for each in splits])
        self._beside = ThreadPoolExecutor(1, "gpu")

    def prepare(self, sizes: Collection[int]) -> None:
        splits = {size: BatchSplit.of(size, self.share) for size in sizes}
        self._splits |= splits
        for executable, counts in (
            (self._cpu, {each.cpu for each in splits.values()}),
            (self._gpu, {each.gpu for each in splits.values()}),
        ):
            if executable is not None and counts - {0}:
                executable.prepare(counts - {0})

    def forward(self, images: Array) -> Array:
        """On whichever has the larger part, with the statistics that the state has now."""
        on_gpu = self._gpu is not None and (self._cpu is None or self.share > 0.5)
        executable, state = (self._gpu, self._other) if on_gpu else (self._cpu, self._own)
        own = state.statistics.copy()
        state.statistics[...] = self._state.statistics
        try:
            return _there(executable).forward(images)
        finally:
            state.statistics[...] = own

    def compute_gradients(self, request: GradientRequest) -> float:
        self._take_statistics()
        images, labels, ready, need = request.images, request.labels, request.ready, request.need
        batch, split = len(images), self._splits[len(images)]
        shares = split.cpu / batch, split.gpu / batch
        sums = _Sums(self._state.gradients, self._other.gradients, adding=split.cpu > 0 or request.accumulate)

        def on_cpu(ready: GradientsReady | None, need: ValuesNeeded | None) -> float:
            mine = slice(0, split.cpu)
            weighted = request.weight * shares[0]
            part = replace(request, images=images[mine], labels=labels[mine], weight=weighted, ready=ready, need=need)
            return _there(self._cpu).compute_gradients(part)

        def on_gpu(ready: GradientsReady | None, need: ValuesNeeded | None) -> float:
            its = slice(split.cpu, batch)
            weighted, draw = request.weight * shares[1], int(rng.bits((request.draw, GPU_RNG_STREAM), 1)[0])
            part = GradientRequest(images[its], labels[its], weighted, draw, ready=ready, need=need)
            return _there(self._gpu).compute_gradients(part)

        if not split.gpu:
            losses = on_cpu(ready, need), 0.0
        elif not split.cpu:
            losses = 0.0, sums.of_one(on_gpu, ready, need)
        else:
            losses = sums.of_both(on_cpu, on_gpu, ready, need, self._beside)
        self._give_statistics(shares)
        return float(np.dot(shares, losses))

    def _take_statistics(self) -> None:
        """Somebody put others in the state's place (a checkpoint): both go on from those."""
        if not np.array_equal(self._state.statistics, self._combined):
            self._own.statistics[...] = self._other.statistics[...] = self._state.statistics

    def _give_statistics(self, shares: Sequence[float]) -> None:
        self._combined = merge_statistics(self._state, (self._own.statistics, self._other.statistics), shares)
        self._state.statistics[...] = self._combined


def _compiled(
    backend: Backend, graph: Graph, state: State, options: Options, sizes: Sequence[int]
) -> Executable | None:
    """For the first size, which is the largest, and the others. None: it computes nothing."""
    largest, *others = sizes
    return backend.compile(graph, state, largest, options, sorted({*others} - {0, largest})) if largest else None


def _there(executable: Executable | None) -> Executable:
    if executable is None:
        raise AgentError("a part of the batch for a backend that was compiled for none", code=ErrorCode.INTERNAL_ERROR)
    return executable


def merge_statistics(state: State, parts: Sequence[NDArray[Any]], shares: Sequence[float]) -> NDArray[Any]:
    """Running statistics of parts of a batch as those of the whole: means and variances by the parts' shares, and to
    variances how far the means are apart."""
    whole = sum((np.float32(share) * part for share, part in zip(shares, parts, strict=True)), np.zeros_like(parts[0]))
    apart = np.zeros_like(whole)
    views, apart_views = state.statistics_packing.views(whole), state.statistics_packing.views(apart)
    for share, part in zip(shares, parts, strict=True):
        for name, seen in state.statistics_packing.views(part).items():
            if name.endswith(MEAN):
                variance = apart_views[name.removesuffix(MEAN) + VARIANCE]
                variance += np.float32(share) * (seen - views[name]) ** 2
    return whole + apart


Run = Callable[[GradientsReady | None, ValuesNeeded | None], float]


class _Sums:
    """Brings the GPU's gradients of a step to the processor's, a part at a time. Whoever trains is called on its own
    thread only."""

    def __init__(self, gradients: Array, others: Array, *, adding: bool) -> None:
        self._gradients, self._others, self._adding = gradients, others, adding
        self._complete = _Gates()  # parts of the GPU's gradients
        self._fresh = _Gates()  # parts of the values that may be read

    def of_one(self, run: Run, ready: GradientsReady | None, need: ValuesNeeded | None) -> float:
        """The GPU has all images."""

        def hand_over(start: int, end: int) -> None:
            self._bring(start, end)
            if ready is not None:
                ready(start, end)

        loss = run(hand_over if ready is not None else None, need)
        if ready is None:
            self._bring(0, len(self._gradients))
        return loss

    def of_both(
        self, cpu: Run, gpu: Run, ready: GradientsReady | None, need: ValuesNeeded | None, beside: Executor
    ) -> tuple[float, float]:
        def values_are_there(start: int, end: int) -> None:
            if need is not None:
                need(start, end)
            self._fresh.open(start)

        def hand_over(start: int, end: int) -> None:
            self._complete.wait(start)
            if running.done():
                running.result()  # raises what ended it
            self._bring(start, end)
            if ready is not None:
                ready(start, end)

        tells = (lambda start, _end: self._complete.open(start)) if ready is not None else None
        waits = (lambda start, _end: self._fresh.wait(start)) if need is not None else None
        running = beside.submit(gpu, tells, waits)
        running.add_done_callback(lambda _: self._complete.open_all())
        try:
            loss = cpu(hand_over if ready is not None else None, values_are_there if need is not None else None)
        finally:
            self._fresh.open_all()  # the GPU does not wait for a processor that failed
            other = running.result()
        if ready is None:
            self._bring(0, len(self._gradients))
        return loss, other

    def _bring(self, start: int, end: int) -> None:
        if self._adding:
            self._gradients[start:end] += self._others[start:end]
        else:
            self._gradients[start:end] = self._others[start:end]


class _Gates:
    """One for each part, named by where it starts; or all at once."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._opened: set[int] = set()
        self._all = False

    def open(self, start: int) -> None:
        with self._changed:
            self._opened.add(start)
            self._changed.notify_all()

    def open_all(self) -> None:
        with self._changed:
            self._all = True
            self._changed.notify_all()

    def wait(self, start: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._all or start in self._opened)
