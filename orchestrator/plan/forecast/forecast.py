"""Predicts the time of a synchronous training step on a rack, and its efficiency: compute time / step time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.plan.forecast.device_model import PhoneModel
from orchestrator.plan.forecast.overlap import StepTiming, overlapped_step_s, sequential_step_s
from orchestrator.plan.link_rate import bytes_per_second
from phone_agent.api.forecast import (
    BucketTimes,
    CollectiveConfig,
    LinkProfile,
    StepPlan,
    allreduce_s,
    choose_communication,
    gradient_count,
    order_chunks,
    plan_step,
)
from phone_agent.api.memory import Options, largest_batch, training_options
from phone_agent.api.models import Graph
from phone_agent.contract.schema import CommunicationSpec, OptimizerSpec
from phone_agent.contract.sizes import FLOAT

PAYLOAD_FRACTION = 1448 / 1538  # TCP payload of an Ethernet frame: without headers, preamble and inter-frame gap
LATENCY_S = 0.0005  # from rank to rank, an estimate: USB, adapter, and the sleep of a waiting rank
TARGET_EFFICIENCY = 0.95
MAX_BATCH = 4096


@dataclass(frozen=True)
class RackModel:
    switches: tuple[str, ...]  # of each rank, in ring order
    links: LinkProfile

    @property
    def phones(self) -> int:
        return len(self.switches)


@dataclass(frozen=True)
class TrainingSetup:
    batch: int | None = None  # per phone; None: as large as memory allows
    memory_bytes: int = 0
    algorithm: str = "auto"
    wire: str = "fp32"
    bucket_bytes: int = 0
    group_size: int = 0
    overlap: bool = True
    images_per_s: float | None = None  # measured speed of one phone; None: by the phone model


@dataclass(frozen=True)
class Forecast:
    """Of one network on one rack."""

    network: str
    gradient_bytes: int
    batch: int
    compute_s: float
    communication_s: float
    step_s: float
    images_per_s: float
    collective: CollectiveConfig
    efficient_batch: int | None  # the smallest that reaches TARGET_EFFICIENCY; None: no batch that fits does
    max_batch: int  # the largest that fits in memory

    @property
    def efficiency(self) -> float:
        return self.compute_s / self.step_s


def rack_from_inventory(cluster: Cluster, phones: Sequence[Phone], latency_s: float = LATENCY_S) -> RackModel:
    switches = tuple(phone.switch for phone in phones)
    uplinks = [switch.uplink.rate for switch in cluster.switches if switch.uplink and len(set(switches)) > 1]
    inter_switch = min(map(_payload_rate, uplinks), default=_payload_rate(cluster.rate))
    return RackModel(switches, LinkProfile(latency_s, _payload_rate(cluster.rate), inter_switch))


def uniform_rack(phones: int, switches: int, rate: str, uplink: str, latency_s: float = LATENCY_S) -> RackModel:
    """Phones spread evenly over the switches."""
    ranks = tuple(f"sw{1 + rank * switches // phones}" for rank in range(phones))
    inter_switch = _payload_rate(uplink if switches > 1 else rate)
    return RackModel(ranks, LinkProfile(latency_s, _payload_rate(rate), inter_switch))


def _payload_rate(rate: str) -> float:
    """TCP payload in bytes per second on a link of this rate."""
    return bytes_per_second(rate) * PAYLOAD_FRACTION


def forecast(graph: Graph, rack: RackModel, phone: PhoneModel, setup: TrainingSetup) -> Forecast:
    options = _memory_options(graph, phone, setup)
    max_batch = min(largest_batch(graph, setup.memory_bytes or phone.memory_bytes, options), MAX_BATCH)
    predict = partial(_predict_step, graph, rack, phone, setup, options)
    batch = setup.batch or max_batch
    step = predict(batch)
    return Forecast(
        network=graph.name,
        gradient_bytes=gradient_count(graph) * FLOAT,
        batch=batch,
        compute_s=step.compute_s,
        communication_s=step.communication_s,
        step_s=step.step_s,
        images_per_s=batch * rack.phones / step.step_s,
        collective=step.collective,
        efficient_batch=_smallest_efficient_batch(predict, max(max_batch, batch)),
        max_batch=max_batch,
    )


def _memory_options(graph: Graph, phone: PhoneModel, setup: TrainingSetup) -> Options:
    """As `launch` plans for phones that do not write checkpoints, in-memory checkpoints included."""
    return training_options(graph, OptimizerSpec(), threads=len(phone.clocks), wire=setup.wire)


def _choose_collective(graph: Graph, rack: RackModel, setup: TrainingSetup, batch: int) -> CollectiveConfig:
    """As a run chooses it: before it knows how fast its phones compute."""
    if setup.wire == "powersgd":
        raise UsageError("the compute time of PowerSGD is not modeled", remedy="--wire fp16")
    links = rack.links if rack.phones > 1 else None
    collective = choose_communication(
        graph,
        batch,
        links,
        rack.switches,
        CommunicationSpec(
            setup.algorithm, setup.wire, setup.overlap, group_size=setup.group_size, bucket_bytes=setup.bucket_bytes
        ),
    )
    if links is not None and collective.predicted_s is None:
        raise UsageError(
            f"--algorithm {collective.algorithm} is not modeled", remedy="--algorithm ring or hierarchical"
        )
    return collective


@dataclass(frozen=True)
class _StepPrediction:
    compute_s: float
    communication_s: float
    step_s: float
    collective: CollectiveConfig


def _predict_step(  # noqa: PLR0917 - bound by `partial`, but for the batch
    graph: Graph, rack: RackModel, phone: PhoneModel, setup: TrainingSetup, options: Options, batch: int
) -> _StepPrediction:
    collective = _choose_collective(graph, rack, setup, batch)
    plan = plan_step(graph, batch, replace(options, bucket_bytes=collective.bucket_bytes))
    compute = _simulate_compute(plan, phone)
    if setup.images_per_s is not None:
        compute = compute.scaled(batch / setup.images_per_s / compute.compute_s)
    timing = StepTiming(
        compute.compute_s,
        compute.ready,
        compute.needed,
        update_s=[phone.background_update_s(part.stop - part.start) for part in plan.parts],
        allreduce_s=[_allreduce_s(rack, collective, chunk.span.stop - chunk.span.start) for chunk in plan.chunks],
    )
    order = order_chunks(plan.chunks, BucketTimes(timing.ready, timing.needed, timing.allreduce_s))
    step_s = overlapped_step_s(timing, order) if setup.overlap else sequential_step_s(timing)
    return _StepPrediction(timing.compute_s, timing.communication_s, step_s, collective)


def _allreduce_s(rack: RackModel, collective: CollectiveConfig, count: int) -> float:
    return allreduce_s(rack.links, rack.switches, collective, count) if rack.phones > 1 else 0.0


@dataclass(frozen=True)
class _ComputeTiming:
    compute_s: float
    ready: list[float]
    needed: list[float]

    def scaled(self, factor: float) -> _ComputeTiming:
        ready, needed = ([factor * each for each in times] for times in (self.ready, self.needed))
        return _ComputeTiming(self.compute_s * factor, ready, needed)


def _simulate_compute(plan: StepPlan, phone: PhoneModel) -> _ComputeTiming:
    """When forward first reads each part of the weights, and when backward has completed each part of the gradients."""
    begins = [0.0, *accumulate(phone.op_time(op).seconds for op in plan.operations)]
    return _ComputeTiming(begins[-1], [begins[index] for index in plan.ready], [begins[index] for index in plan.needed])


def _smallest_efficient_batch(predict: Callable[[int], _StepPrediction], max_batch: int) -> int | None:
    """Binary search: efficiency grows with the batch."""

    def is_efficient(batch: int) -> bool:
        step = predict(batch)
        return step.compute_s >= TARGET_EFFICIENCY * step.step_s

    if not is_efficient(max_batch):
        return None
    low, high = 0, max_batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_efficient(middle) else (middle, high)
    return high
