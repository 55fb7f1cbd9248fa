"""From a run's specification to a loop that is ready to train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm import Collective, collective
from phone_agent.comm.world import World
from phone_agent.data import Dataset, open_dataset
from phone_agent.data.sampling import Batch, Normaliser, ShardSource
from phone_agent.nn.backends import Executable, Options, backend
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.buckets import parts
from phone_agent.nn.plan.memory import MemoryPlan
from phone_agent.schema import RunSpec
from phone_agent.train import start
from phone_agent.train.budget import plan_memory
from phone_agent.train.checks import own_rank
from phone_agent.train.loop import Loop, Updates, micro_batches
from phone_agent.train.overlap import Overlap
from phone_agent.train.progress import RankStep
from phone_agent.train.timeline import Timeline

BUCKET_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Training:
    """A rank's part of a run. `exact` sums in full precision, whatever the gradients travel as."""

    dataset: Dataset
    normaliser: Normaliser
    graph: Graph
    state: State
    executable: Executable
    optimiser: Any
    overlap: Overlap
    loop: Loop
    exact: Collective
    timeline: Timeline
    threads: int
    memory: MemoryPlan | None  # None: not planned


def build(
    directory: Path, spec: RunSpec, threads: int, world: World, tell: Callable[[int, RankStep], None]
) -> Training:
    own = own_rank(spec, world)
    dataset = open_dataset(spec.data, world.rank, world.size, spec.seed)
    source = ShardSource(dataset, own.batch, spec.seed, own.rank)
    exact = collective("ring", world)
    graph = start.build_graph(directory, spec)
    options, memory = _planned(graph, own.batch, spec, threads)
    state = start.initial_state(directory, spec, graph, own.rank, exact.allreduce)
    micro = micro_batches(own.batch, memory.batch if memory else spec.micro_batch or own.batch)
    sizes = sorted({part.stop - part.start for part in micro}, reverse=True)
    executable = backend(spec.backend).compile(graph, state, sizes[0], options, sizes[1:])
    optimiser = _Sgd(executable, spec)
    timeline = Timeline()
    reducer = _Summed(collective(spec.algorithm, world))
    updates = Updates(world, state, reducer, optimiser, lambda _: spec.optimizer.learning_rate, tell)
    overlap = Overlap(parts(state.packing, options.bucket_bytes), options.bucket_bytes, updates, timeline)
    loop = Loop(executable, _Parts(source), overlap, micro, spec.global_batch, spec.overlap, spec.seed, own.rank)
    return Training(
        dataset=dataset,
        normaliser=source.normaliser,
        graph=graph,
        state=state,
        executable=executable,
        optimiser=optimiser,
        overlap=overlap,
        loop=loop,
        exact=exact,
        timeline=timeline,
        threads=options.threads,
        memory=memory,
    )


def _planned(graph: Graph, batch: int, spec: RunSpec, threads: int) -> tuple[Options, MemoryPlan | None]:
    """Only the core plans its memory; numpy takes what it takes."""
    options = Options(
        threads=threads, memory_bytes=spec.memory_bytes or None, bucket_bytes=spec.bucket_bytes or BUCKET_BYTES
    )
    if spec.backend != "cpu":
        return options, None
    return plan_memory(graph, min(batch, spec.micro_batch or batch), options)


class _Sgd:
    def __init__(self, executable: Executable, spec: RunSpec) -> None:
        self._executable, self._rules = executable, spec.optimizer
        self.buffers: dict[str, NDArray[np.float32]] = {}

    def update(self, part: slice, rate: float, _: int) -> None:
        self._executable.update(rate, self._rules.momentum, self._rules.weight_decay, part)


class _Summed:
    def __init__(self, summed: Collective) -> None:
        self._summed = summed

    def reduce(self, gradients: NDArray[np.float32], part: slice) -> None:
        self._summed.allreduce(gradients[part])


class _Parts:
    def __init__(self, source: ShardSource) -> None:
        self._source = source

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        whole = self._source.batch(step)
        return Batch(whole.images[part], whole.labels[part])
