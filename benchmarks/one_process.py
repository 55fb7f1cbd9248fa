"""Repeat a run in one process from its run.json: the batch of each phone in turn, gradients added in ring order.

Batch normalization and dropout work per phone, as in the run. The only remaining differences are those of distributed
execution: threads, messages, buckets and the order of updates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from phone_agent.backends import get_backend
from phone_agent.contract import rng
from phone_agent.contract.schema import RankSpec, RunSpec
from phone_agent.data.sampling import Sampler, sampler
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.buckets import trainable_bucket_slices
from phone_agent.nn.plan.options import Options
from phone_agent.train import schedules
from phone_agent.train.bucket_order import split_buckets
from phone_agent.train.loop import DROPOUT_STREAM, sizes, split_micro_batches
from phone_agent.train.optimizers import build_optimizer
from tests.phone_agent.threaded_training import added


class OneProcess:
    """`bucket_bytes` comes from the `comm_plan` event of the run and determines the summation order. The seed
    `rounding` moves every initial weight by one unit in the last place, up or down."""

    def __init__(self, spec: RunSpec, graph: Graph, bucket_bytes: int, rounding: int | None = None) -> None:
        self._spec, self._state = spec, State(graph, spec.seed)
        if rounding is not None:
            _perturb_rounding(self._state.values, rounding)
        self._parts = [_parts(spec, rank) for rank in spec.ranks]
        largest, *others = sorted({size for parts in self._parts for size in sizes(parts)}, reverse=True)
        self._executable = get_backend("cpu").compile(graph, self._state, largest, Options(), others)
        self._samplers: list[Sampler] = [sampler(spec, rank.rank) for rank in spec.ranks]
        self._optimizer = build_optimizer(spec.optimizer, self._state)
        self._buckets = split_buckets(trainable_bucket_slices(self._state.packing, bucket_bytes), bucket_bytes)

    def losses(self) -> list[float]:
        return [self._step(step) for step in range(1, self._spec.steps + 1)]

    def _step(self, step: int) -> float:
        """Run one step, counted from 1, and return the loss over the global batch."""
        spec = self._spec
        losses, gradients = zip(*(self._phone(rank.rank, step) for rank in spec.ranks), strict=True)
        self._state.gradients[...] = added(gradients, self._buckets)
        rate = schedules.learning_rate(spec.optimizer, spec.schedule, step, spec.steps)
        self._optimizer.update(slice(None), rate, step)
        return float(np.average(losses, weights=[rank.batch for rank in spec.ranks]))

    def _phone(self, rank: int, step: int) -> tuple[float, NDArray[np.float32]]:
        parts = self._parts[rank]
        losses = list(map(partial(self._part, rank, step), range(len(parts))))
        return float(np.average(losses, weights=sizes(parts))), self._state.gradients.copy()

    def _part(self, rank: int, step: int, number: int) -> float:
        spec, batch = self._spec, self._samplers[rank].batch(step - 1, self._parts[rank][number])
        draw = int(rng.bits((spec.seed, DROPOUT_STREAM, rank, number), 1, start=step)[0])
        weight = len(batch.labels) / spec.global_batch
        return self._executable.loss_and_gradients(batch.images, batch.labels, weight, draw, accumulate=number > 0)


def _perturb_rounding(values: NDArray[np.float32], seed: int) -> None:
    """Zeros stay zero: their neighbors are denormals, which rounding does not produce."""
    towards = np.random.default_rng(seed).choice(np.array([-np.inf, np.inf], np.float32), values.shape)
    values[...] = np.where(values == 0, values, np.nextafter(values, towards))


def at_once(spec: RunSpec) -> RunSpec:
    """The same run with one phone that computes the whole global batch."""
    return replace(
        spec, ranks=(replace(spec.ranks[0], batch=spec.global_batch),), compute=replace(spec.compute, micro_batch=0)
    )


def _parts(spec: RunSpec, rank: RankSpec) -> list[slice]:
    before = sum(each.batch for each in spec.ranks[: rank.rank])
    largest, smallest = spec.compute.micro_batch or rank.batch, spec.compute.min_micro_batch
    return split_micro_batches(rank.batch, largest, before, smallest)
