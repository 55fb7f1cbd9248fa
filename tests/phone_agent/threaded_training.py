"""Ranks as threads of this process, each with its own training loop; and one process that does all their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.comm.collective import Collective
from phone_agent.comm.factory import make_collective
from phone_agent.comm.schedule import split_evenly
from phone_agent.comm.world import World
from phone_agent.contract import rng
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.data.sampling import Batch
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.options import Options
from phone_agent.train.bucket_order import Chunk, split_buckets
from phone_agent.train.loop import DROPOUT_STREAM, StepUpdates, TrainingLoop, split_micro_batches
from phone_agent.train.overlap import Overlap
from phone_agent.train.rank_steps import RankStep
from phone_agent.train.timeline import Timeline
from tests.phone_agent.thread_world import on_ranks

RULES = OptimizerSpec(learning_rate=0.01)
# With images of a size that each takes. Narrow: what is compared does not depend on the number of channels.
TEN = {
    "alexnet": 64,
    "googlenet": 32,
    "inception_v3": 75,
    "mobilenet_v1": 32,
    "mobilenet_v2": 32,
    "resnet50": 32,
    "resnet101": 32,
    "resnet152": 32,
    "squeezenet_v1_0": 32,
    "squeezenet_v1_1": 32,
}


def network(name: str, width: float = 0.125) -> Graph:
    side = TEN[name]
    return models.build(name, 10, (side, side, 3), width)


@dataclass(frozen=True)
class FixedAssignment:
    """The same micro-batches in every step."""

    own: Sequence[slice]

    def micro_batches(self, step: int) -> Sequence[slice]:
        return self.own


@dataclass(frozen=True)
class Setting:
    """`batches`, one per rank, in micro-batches of at most `largest`; `later` ones from their step on."""

    graph: Graph
    batches: Sequence[int]
    largest: int = 1000
    steps: int = 5
    seed: int = 3
    backend: str = "cpu"
    bucket_bytes: int = 20_000
    later: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def global_batch(self) -> int:
        return sum(self.batches)

    def source(self) -> Samples:
        return Samples(self.graph, self.global_batch)

    def at(self, step: int) -> Sequence[int]:
        return next((self.later[since] for since in sorted(self.later, reverse=True) if since <= step), self.batches)

    def micro(self, rank: int, step: int = 1) -> list[slice]:
        batches = self.at(step)
        return split_micro_batches(batches[rank], self.largest, sum(batches[:rank]))

    def most(self, rank: int) -> int:
        """Images it computes at once."""
        return min(self.largest, max(batches[rank] for batches in (self.batches, *self.later.values())))


@dataclass(frozen=True)
class Planned:
    setting: Setting
    rank: int

    def micro_batches(self, step: int) -> list[slice]:
        return self.setting.micro(self.rank, step)


@dataclass(frozen=True)
class Samples:
    """Any part of a global batch; the samples depend only on the step."""

    graph: Graph
    global_batch: int

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        chosen = np.random.default_rng(step)
        images = chosen.normal(0, 1, (self.global_batch, *self.graph.shape)).astype(np.float32)
        labels = chosen.integers(0, self.graph.classes, self.global_batch)
        return Batch(images[part], labels[part])

    def expect(self, parts: Sequence[slice]) -> None: ...

    def close(self) -> None: ...


@dataclass
class Ring:
    """The real ring, over threads; records what it reduces."""

    summed: Collective
    reduced: list[tuple[int, int]] = field(default_factory=list)

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        del step
        self.reduced.append((part.start, part.stop))
        self.summed.allreduce(gradients[part])

    def persistent_buffers(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        del gradients
        return {}


class TextbookSgd:
    def __init__(self, state: State, rules: OptimizerSpec = RULES) -> None:
        self._state, self._rules = state, rules
        self.buffers: dict[str, NDArray[Any]] = {"momenta": state.momenta}

    def update(self, part: slice, rate: float, step: int) -> None:
        del step
        state, rules = self._state, self._rules
        state.momenta[part] = rules.momentum * state.momenta[part] + state.gradients[part]
        state.values[part] -= np.float32(rate) * state.momenta[part]


@dataclass
class Result:
    losses: list[float]
    state: State
    reduced: list[tuple[int, int]]
    timeline: Timeline


def together(setting: Setting, *, overlapping: bool = True) -> list[Result]:
    """By rank."""
    return on_ranks(len(setting.batches), lambda world: _rank(setting, world, overlapping=overlapping))


def _rank(setting: Setting, world: World, *, overlapping: bool) -> Result:
    state = State(setting.graph, setting.seed)
    options = Options(bucket_bytes=setting.bucket_bytes)
    executable = get_backend(setting.backend).compile(setting.graph, state, setting.most(world.rank), options)
    ring = Ring(make_collective("ring", world))
    result = Result([], state, ring.reduced, Timeline())

    def tell(step: int, own: RankStep) -> None:
        shares = np.array(setting.at(step)) / setting.global_batch
        assert own.images == setting.at(step)[world.rank]
        result.losses.append(float(world.allgather(np.array([own.loss]))[:, 0] @ shares))

    updates = StepUpdates(world, state, ring, TextbookSgd(state), lambda _: RULES.learning_rate, tell)
    overlap = Overlap(
        bucket_slices(state.packing, setting.bucket_bytes), setting.bucket_bytes, updates, result.timeline
    )
    loop = TrainingLoop(
        executable,
        setting.source(),
        overlap,
        Planned(setting, world.rank),
        setting.global_batch,
        state.gradients,
        overlapping,
        setting.seed,
        world.rank,
    )
    assert list(loop.run(1, setting.steps)) == list(range(1, setting.steps + 1))
    overlap.drain()
    overlap.close()
    return result


def alone(setting: Setting) -> Result:
    """Every rank's batches in turn. Gradients are added up in the ring's order, for networks magnify any other
    rounding: one change in 10 million of the first values is one in a hundred of the loss, five steps on."""
    state = State(setting.graph, setting.seed)
    result = Result([], state, [], Timeline())
    source, executables = setting.source(), {}
    for step in range(1, setting.steps + 1):
        gradients, loss = [], 0.0
        for rank, batch in enumerate(setting.at(step)):
            own = 0.0
            state.gradients[...] = 0
            for number, part in enumerate(setting.micro(rank, step)):
                images, labels = source.batch(step - 1, part).images, source.batch(step - 1, part).labels
                share, size = len(labels) / setting.global_batch, len(labels)
                if size not in executables:
                    executables[size] = get_backend(setting.backend).compile(setting.graph, state, size, Options())
                draw = int(rng.bits((setting.seed, DROPOUT_STREAM, rank, number), 1, start=step)[0])
                one = executables[size].loss_and_gradients(images, labels, share, draw, accumulate=number > 0)
                own += one * len(labels) / batch
            gradients.append(state.gradients.copy())
            loss += own * batch / setting.global_batch
        cut = split_buckets(bucket_slices(state.packing, setting.bucket_bytes), setting.bucket_bytes)
        state.gradients[...] = added(gradients, cut)
        TextbookSgd(state).update(slice(None), RULES.learning_rate, step)
        result.losses.append(loss)
    return result


def added(gradients: Sequence[NDArray[np.float32]], cut: Sequence[Chunk]) -> NDArray[np.float32]:
    """Every chunk is split into one segment per rank; each starts at its own rank and goes around the ring."""
    total = np.empty_like(gradients[0])
    for bucket_chunk in cut:
        for first, chunk in enumerate(split_evenly(bucket_chunk.span, len(gradients))):
            begins, *others = (*gradients[first:], *gradients[:first])
            total[chunk] = sum((each[chunk] for each in others), start=begins[chunk])
    return total
