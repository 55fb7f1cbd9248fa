"""Autotuning: picks the allreduce algorithm, group size, wire format and bucket size from a cost model. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from phone_agent.comm.hierarchical import assign_groups, slice_count
from phone_agent.comm.link_probe import LinkProfile
from phone_agent.comm.wire import WIRE_FORMATS
from phone_agent.contract.schema import CommunicationSpec
from phone_agent.contract.sizes import FLOAT
from phone_agent.nn.plan.buckets import LAST_BUCKET_DIVISOR

BUCKET_SIZES = tuple(1024 * 1024 * size for size in (4, 8, 16, 32))
DEFAULT_BUCKET_BYTES = BUCKET_SIZES[0]  # not smaller: ranks wait for each other at each bucket
# Smaller buckets start earlier and delay urgent ones less, so they win if at most this much slower.
BUCKET_TOLERANCE = 1.02
OVERLAP_FRACTION = 0.5  # of the estimated compute time, counted on to hide communication: estimates are rough
SWITCH_THRESHOLD = 0.9  # a more complex option must take at most this fraction of the time of a simpler one
AUTO_WIRES = ("fp32", "fp16")  # simplest first; formats that lose more are never chosen automatically
SCHEDULED_ALGORITHMS = ("ring", "hierarchical")  # these support every wire format


@dataclass(frozen=True)
class CollectiveConfig:
    """How gradients are reduced.

    `group`: the largest group size of a hierarchical allreduce; 0: one group per switch. `predicted_s`: time of all
    messages of a step by the cost model; None for a single rank and for MPI_Allreduce. `limit_s`: the lower bound that
    the links allow; None for a single rank.
    """

    algorithm: str
    wire: str
    bucket_bytes: int
    predicted_s: float | None = None
    limit_s: float | None = None
    group: int = 0


def autotune(
    requested: CommunicationSpec,
    links: LinkProfile | None,
    switches: Sequence[str],
    sizes: MessageSizes,
    compute_s: float | None = None,
) -> CollectiveConfig:
    """The fastest configuration by the cost model. A more complex option must be clearly faster.

    `auto` and 0 in the request leave the choice to the model. `switches`: the switch of each rank. `compute_s`: rough
    compute time of a step that overlaps with communication; None if they do not overlap.
    """
    algorithms, wires = _algorithms(requested, switches), _wires(requested)
    if links is None:
        (algorithm, group), *_ = algorithms
        return CollectiveConfig(algorithm, wires[0], requested.bucket_bytes or DEFAULT_BUCKET_BYTES, group=group)
    model = _CostModel(links, switches, sizes, compute_s)
    (least, best), *others = (
        _best_bucket(CollectiveConfig(algorithm, wire, requested.bucket_bytes, group=group), model)
        for wire, (algorithm, group) in product(wires, algorithms)
    )
    for exposed_s, config in others:
        if exposed_s < _threshold(best, config) * least:
            least, best = exposed_s, config
    return replace(best, limit_s=lower_bound_s(links, switches, best, sizes))


def _algorithms(requested: CommunicationSpec, switches: Sequence[str]) -> list[tuple[str, int]]:
    """Algorithms with their group sizes, simplest first."""
    if requested.algorithm != "auto":
        return [(requested.algorithm, requested.group_size)]
    smaller = range(2, max(Counter(switches).values()))
    groups = (requested.group_size,) if requested.group_size else (0, *smaller)
    return [("ring", 0), *(("hierarchical", group) for group in groups)]


def _wires(requested: CommunicationSpec) -> tuple[str, ...]:
    if requested.wire != "auto":
        return (requested.wire,)
    return AUTO_WIRES if requested.algorithm in {*SCHEDULED_ALGORITHMS, "auto"} else AUTO_WIRES[:1]


def _threshold(best: CollectiveConfig, other: CollectiveConfig) -> float:
    """The fraction of the best time that `other` must beat. Another group size is not more complex."""
    same_complexity = (best.algorithm, best.wire) == (other.algorithm, other.wire)
    return 1.0 if same_complexity else SWITCH_THRESHOLD


def predict_seconds(
    links: LinkProfile, switches: Sequence[str], config: CollectiveConfig, messages: Sequence[float]
) -> float | None:
    """Seconds for messages of these sizes (bytes on the wire), one after the other."""
    if config.algorithm not in SCHEDULED_ALGORITHMS:
        return None
    if config.algorithm != "hierarchical":
        return sum(_ring_seconds(links, len(switches), size) for size in messages)
    hierarchy = _Hierarchy.of(links, switches, config.group)
    return sum(hierarchy.seconds(size) for size in messages)


def lower_bound_s(links: LinkProfile, switches: Sequence[str], config: CollectiveConfig, sizes: MessageSizes) -> float:
    """No such allreduce is faster on these links: the time for the bytes that each link must carry, without latency."""
    total = sum(sizes.step_messages(config.wire, config.bucket_bytes))
    if config.algorithm != "hierarchical":
        return _ring_seconds(replace(links, latency_s=0.0), len(switches), total)
    return _Hierarchy.of(links, switches, config.group).busiest_s(total)


@dataclass(frozen=True)
class _CostModel:
    """A workload on given links, beside given compute."""

    links: LinkProfile
    switches: Sequence[str]
    sizes: MessageSizes
    compute_s: float | None

    def predict(self, config: CollectiveConfig) -> CollectiveConfig:
        messages = self.sizes.step_messages(config.wire, config.bucket_bytes)
        return replace(config, predicted_s=self._seconds(config, messages))

    def exposed_s(self, config: CollectiveConfig) -> float:
        """Communication time that a step waits for.

        That is: what compute does not hide; the last bucket, which is complete last and needed first; and half of a
        bucket, for the one in flight when the last one is ready.
        """
        predicted_s = config.predicted_s or 0.0
        if self.compute_s is None:
            return predicted_s
        bucket_s, last_bucket_s = (
            self._seconds(config, messages(config.wire, config.bucket_bytes)) or 0.0
            for messages in (self.sizes.bucket_messages, self.sizes.last_bucket_messages)
        )
        return max(0.0, predicted_s - OVERLAP_FRACTION * self.compute_s) + bucket_s / 2 + last_bucket_s

    def _seconds(self, config: CollectiveConfig, messages: Sequence[float]) -> float | None:
        return predict_seconds(self.links, self.switches, config, messages)


def _best_bucket(config: CollectiveConfig, model: _CostModel) -> tuple[float, CollectiveConfig]:
    """The exposed time and the configuration with the best bucket size; the smallest size if nothing is predicted."""
    sizes = (config.bucket_bytes,) if config.bucket_bytes else BUCKET_SIZES
    configs = [model.predict(replace(config, bucket_bytes=size)) for size in sizes]
    exposed = [model.exposed_s(each) for each in configs]
    return next(pair for pair in zip(exposed, configs, strict=True) if pair[0] <= BUCKET_TOLERANCE * min(exposed))


def _ring_seconds(links: LinkProfile, ranks: int, size: float) -> float:
    """K - 1 hops of reduce-scatter and K - 1 hops of all-gather, each with 1/K of the buffer."""
    return 2 * (ranks - 1) * (links.latency_s + size / ranks / links.slowest)


@dataclass(frozen=True)
class _Hierarchy:
    """`members`: size of the largest of `groups` groups. `crosses`: groups are on different switches."""

    links: LinkProfile
    members: int
    groups: int
    crosses: bool

    @classmethod
    def of(cls, links: LinkProfile, switches: Sequence[str], group: int) -> _Hierarchy:
        sizes = Counter(assign_groups(switches, group))
        return cls(links, max(sizes.values()), len(sizes), len(set(switches)) > 1)

    def seconds(self, size: float) -> float:
        """While the uplinks work, other slices are summed and gathered within groups; not so the first and last slice.

        Where the cables to the phones are the bottleneck, they are busy throughout.
        """
        within_s = 2 * (self.members - 1) * size / self.members / self.links.intra_switch
        exposed = within_s / self._slices(size) if self._uplink_s(size) > self._cable_s(size) else 0.0
        hops = 2 * (self.members - 1) + 2 * (self.groups - 1)
        return self.busiest_s(size) + exposed + hops * self.links.latency_s

    def busiest_s(self, size: float) -> float:
        return max(self._cable_s(size), self._uplink_s(size))

    def _cable_s(self, size: float) -> float:
        """The cable of a phone carries the rings within its group, and its share of those across groups."""
        ranks = self.members * self.groups
        return 2 * (ranks - 1) * size / ranks / self.links.intra_switch

    def _uplink_s(self, size: float) -> float:
        """An uplink carries all rings across groups."""
        return 2 * (self.groups - 1) * size / self.groups / self.links.inter_switch if self.crosses else 0.0

    def _slices(self, size: float) -> int:
        return slice_count(int(size), self.members * self.groups)


class MessageSizes(Protocol):
    """Bytes of each allreduce, where gradients are reduced in buckets of `bucket_bytes`."""

    def step_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """All messages of a step, in order."""
        ...

    def bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """The messages of one full bucket."""
        ...

    def last_bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """The messages of the bucket that backward completes last and forward needs first."""
        ...


@dataclass(frozen=True)
class DenseMessageSizes:
    """`count` gradients that can be split anywhere."""

    count: int

    def step_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        buckets = max(1, round(self.count * FLOAT / bucket_bytes))
        return [WIRE_FORMATS[wire].size(self.count) / buckets] * buckets

    def bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        return [WIRE_FORMATS[wire].size(self._bucket(bucket_bytes))]

    def last_bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        return [WIRE_FORMATS[wire].size(self._bucket(bucket_bytes) // LAST_BUCKET_DIVISOR)]

    def _bucket(self, bucket_bytes: int) -> int:
        return min(self.count, bucket_bytes // FLOAT)
