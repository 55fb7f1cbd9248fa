"""The plan of a training step, operation by operation, and the cost model of its communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.comm.autotune import (
    SCHEDULED_ALGORITHMS,
    CollectiveConfig,
    DenseMessageSizes,
    autotune,
    predict_seconds,
)
from phone_agent.comm.link_probe import LinkProfile
from phone_agent.comm.wire import WIRE_FORMATS
from phone_agent.contract.schema import CommunicationSpec
from phone_agent.core.ops import Algorithm, Kind, Pooling
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import packing_of
from phone_agent.nn.plan.buckets import schedule_buckets
from phone_agent.nn.plan.memory_plan import estimate_compute_s, fit_plan
from phone_agent.nn.plan.ops import OpSpec
from phone_agent.nn.plan.options import Options
from phone_agent.train.bucket_order import BucketTimes, Chunk, order_chunks, split_buckets


@dataclass(frozen=True)
class StepPlan:
    """A training step: its operations in order, and the parts in which its gradients are handed over.

    By part: `needed` is the first operation that reads its values; from operation `ready` on nothing touches it.
    `chunks`: what is reduced at once, parts or pieces of large ones.
    """

    operations: Sequence[OpSpec]
    parts: Sequence[slice]
    needed: Sequence[int]
    ready: Sequence[int]
    chunks: Sequence[Chunk]


def plan_step(graph: Graph, batch: int, options: Options) -> StepPlan:
    """As a phone with these options computes it."""
    packing, training = packing_of(graph), fit_plan(graph, batch, options).training
    learned = [
        each for each in schedule_buckets(training, packing, options.bucket_bytes) if each.end <= packing.trainable_size
    ]
    parts = [slice(each.start, each.end) for each in learned]
    return StepPlan(
        operations=training.ops,
        parts=parts,
        needed=[each.first_read for each in learned],
        ready=[each.complete_at for each in learned],
        chunks=split_buckets(parts, options.bucket_bytes),
    )


def gradient_count(graph: Graph) -> int:
    """How many numbers an allreduce sums: frozen parameters have no gradient."""
    return packing_of(graph).trainable_size


def choose_communication(
    graph: Graph,
    batch: int,
    link: LinkProfile | None,
    switches: Sequence[str],
    requested: CommunicationSpec,
) -> CollectiveConfig:
    """As a run chooses, which does not know yet how fast its phones compute. `link`: None where a phone is alone."""
    expected_s = estimate_compute_s(graph, batch) if requested.overlap else None
    return autotune(requested, link, switches, DenseMessageSizes(gradient_count(graph)), expected_s)


def allreduce_s(link: LinkProfile, switches: Sequence[str], config: CollectiveConfig, count: int) -> float:
    """Predicted seconds of one allreduce of `count` numbers; 0 for algorithms that are not modeled."""
    return predict_seconds(link, switches, config, [WIRE_FORMATS[config.wire].size(count)]) or 0.0
