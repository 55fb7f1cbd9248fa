"""What a step of synchronous training takes on a rack, and the share of it that is computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.plan.forecast.device_model import Phone
from orchestrator.plan.forecast.overlap import Work, beside, one_after_the_other
from orchestrator.plan.link_rate import bytes_per_second
from phone_agent.api.forecast import (
    CollectiveConfig,
    LinkProfile,
    StepPlan,
    Times,
    allreduce_s,
    arrange,
    choose_communication,
    gradient_count,
    plan_step,
)
from phone_agent.api.memory import Options, largest_batch, training_options
from phone_agent.api.models import Graph
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.contract.sizes import FLOAT

if TYPE_CHECKING:
    from orchestrator.inventory.model import Cluster
    from orchestrator.inventory.model import Phone as Placed

PAYLOAD = 1448 / 1538  # of what Ethernet carries, that TCP is given: headers, preamble and the gap between frames
LATENCY_S = 0.0005  # from rank to rank: an estimate; USB's, the adapter's, and a rank's nap
WANTED = 0.95  # of a step is to be computing
MOST_BATCH = 4096


@dataclass(frozen=True)
class Rack:
    """`switches`: each rank's, in ring order."""

    switches: tuple[str, ...]
    line: LinkProfile

    @property
    def phones(self) -> int:
        return len(self.switches)


@dataclass(frozen=True)
class Rules:
    """How to train: `batch` images a phone and step; None, as many as fit. `pace`: images a second one phone computes,
    measured; None, as modelled."""

    batch: int | None = None
    memory_bytes: int = 0
    algorithm: str = "auto"
    wire: str = "fp32"
    bucket_bytes: int = 0
    group: int = 0
    overlap: bool = True
    pace: float | None = None


@dataclass(frozen=True)
class Forecast:
    """Of one network on one rack. `enough`: the fewest images a phone with which 95 % of a step are computing; None: no
    batch that fits is enough. `fits`: the most that fit."""

    network: str
    gradient_bytes: int
    batch: int
    compute_s: float
    communication_s: float
    step_s: float
    images_per_s: float
    choice: CollectiveConfig
    enough: int | None
    fits: int

    @property
    def efficiency(self) -> float:
        return self.compute_s / self.step_s


def rack_of(cluster: Cluster, placed: Sequence[Placed], latency_s: float = LATENCY_S) -> Rack:
    groups = tuple(phone.switch for phone in placed)
    uplinks = [switch.uplink.rate for switch in cluster.switches if switch.uplink and len(set(groups)) > 1]
    across = min(map(_payload, uplinks), default=_payload(cluster.rate))
    return Rack(groups, LinkProfile(latency_s, _payload(cluster.rate), across))


def imagined(phones: int, switches: int, rate: str, uplink: str, latency_s: float = LATENCY_S) -> Rack:
    """As evenly on their switches as it goes."""
    groups = tuple(f"sw{1 + rank * switches // phones}" for rank in range(phones))
    return Rack(groups, LinkProfile(latency_s, _payload(rate), _payload(uplink if switches > 1 else rate)))


def _payload(rate: str) -> float:
    """Bytes a second that TCP is given on such a cable."""
    return bytes_per_second(rate) * PAYLOAD


def forecast(graph: Graph, on: Rack, phone: Phone, rules: Rules) -> Forecast:
    options = _options(graph, phone, rules)
    memory = rules.memory_bytes or phone.memory_bytes
    fits = min(largest_batch(graph, memory, options), MOST_BATCH)
    step = partial(_step, graph, on, phone, rules, options)
    found = step(rules.batch or fits)
    return Forecast(
        network=graph.name,
        gradient_bytes=gradient_count(graph) * FLOAT,
        batch=rules.batch or fits,
        compute_s=found.compute_s,
        communication_s=found.communication_s,
        step_s=found.step_s,
        images_per_s=(rules.batch or fits) * on.phones / found.step_s,
        choice=found.choice,
        enough=_fewest(step, max(fits, rules.batch or 0)),
        fits=fits,
    )


def _options(graph: Graph, phone: Phone, rules: Rules) -> Options:
    """As `launch` plans for all phones but the two that write checkpoints: with what outlives a rank that dies."""
    return training_options(graph, OptimizerSpec(), threads=len(phone.clocks), wire=rules.wire)


def _choice(graph: Graph, on: Rack, rules: Rules, batch: int) -> CollectiveConfig:
    """As a run chooses, which does not know yet how fast its phones compute."""
    if rules.wire == "powersgd":
        raise UsageError("how long phones compute powersgd's factors is not modelled", remedy="--wire fp16")
    line = on.line if on.phones > 1 else None
    chosen = choose_communication(
        graph,
        batch,
        line,
        on.switches,
        algorithm=rules.algorithm,
        wire=rules.wire,
        bucket_bytes=rules.bucket_bytes,
        group=rules.group,
        overlap=rules.overlap,
    )
    if line is not None and chosen.predicted_s is None:
        raise UsageError(f"how {chosen.algorithm} sums is not modelled", remedy="--algorithm ring or hierarchical")
    return chosen


@dataclass(frozen=True)
class _Step:
    """Seconds of computing, of communication, and of both together."""

    compute_s: float
    communication_s: float
    step_s: float
    choice: CollectiveConfig


def _step(  # noqa: PLR0917 - the network, where, how; then how many
    graph: Graph, on: Rack, phone: Phone, rules: Rules, options: Options, batch: int
) -> _Step:
    choice = _choice(graph, on, rules, batch)
    plan = plan_step(graph, batch, replace(options, bucket_bytes=choice.bucket_bytes))
    sums = [_sum_s(on, choice, piece.where.stop - piece.where.start) for piece in plan.pieces]
    computing = _computing(plan, phone)
    if rules.pace is not None:
        computing = computing.stretched(batch / rules.pace / computing.compute_s)
    updates = [phone.update_beside(part.stop - part.start) for part in plan.parts]
    work = Work(computing.compute_s, computing.ready, computing.needed, updates, sums)
    order = arrange(plan.pieces, Times(work.ready, work.needed, work.sums))
    step_s = beside(work, order) if rules.overlap else one_after_the_other(work)
    return _Step(work.compute_s, work.communication_s, step_s, choice)


def _sum_s(on: Rack, choice: CollectiveConfig, values: int) -> float:
    return allreduce_s(on.line, on.switches, choice, values) if on.phones > 1 else 0.0


@dataclass(frozen=True)
class _Computing:
    compute_s: float
    ready: list[float]
    needed: list[float]

    def stretched(self, by: float) -> _Computing:
        return _Computing(self.compute_s * by, [by * each for each in self.ready], [by * each for each in self.needed])


def _computing(plan: StepPlan, phone: Phone) -> _Computing:
    """When forward reads each part of the values, and backward has completed each part of the gradients."""
    until = [0.0, *accumulate(phone.step(operation).longer for operation in plan.operations)]
    return _Computing(until[-1], [until[index] for index in plan.ready], [until[index] for index in plan.needed])


def _fewest(step: Callable[[int], _Step], most: int) -> int | None:
    """By halving: what a step waits for shrinks with the batch."""

    def is_enough(batch: int) -> bool:
        found = step(batch)
        return found.compute_s >= WANTED * found.step_s

    if not is_enough(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
