"""The next attempt of a run that lost phones or got some back: the same work on other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.partitions import assign_slices, batches_by_partition
from orchestrator.launch.resolve import MIN_BUCKET_BYTES
from orchestrator.launch.run_spec import make_ranks
from orchestrator.plan.batch import apportion_at_least
from orchestrator.records.events import CommPlanEvent
from phone_agent.contract.choices import AUTO
from phone_agent.contract.schema import Partition, RunSpec
from phone_agent.contract.sharding import is_replicated


def next_attempt(
    spec: RunSpec,
    phones: Sequence[Phone],
    number: int,
    *,
    batches: Sequence[int] = (),
    choice: CommPlanEvent | None = None,
) -> RunSpec:
    """Ranks follow the order of the phones.

    `batches`: of the last attempt's ranks at its end, if load balancing moved images. `choice`: the communication that
    the last attempt chose by measurement; it stays.
    """
    if spec.global_batch < len(phones) * spec.compute.min_micro_batch:
        raise UsageError(
            f"a global batch of {spec.global_batch} is not enough for {len(phones)} phones",
            remedy="use fewer phones with --limit",
        )
    assigned = _assign_by_speed(spec, phones, batches) if is_replicated(spec.data) else _assign_partitions(spec, phones)
    upcoming = replace(assigned, attempt=number)
    return _keep_communication(upcoming, choice) if choice else upcoming


def _assign_by_speed(spec: RunSpec, phones: Sequence[Phone], batches: Sequence[int]) -> RunSpec:
    """Every phone has all samples: batches in proportion to the last ones."""
    last = batches if len(batches) == len(spec.ranks) else [rank.batch for rank in spec.ranks]
    known = {rank.phone: float(batch) for rank, batch in zip(spec.ranks, last, strict=True)}
    average = sum(known.values()) / len(known)
    weights = [known.get(phone.name, average) for phone in phones]
    weights = weights if any(weights) else [1.0] * len(phones)
    batches = apportion_at_least(spec.compute.min_micro_batch, spec.global_batch, weights)
    return replace(spec, ranks=make_ranks(phones, batches))


def _assign_partitions(spec: RunSpec, phones: Sequence[Phone]) -> RunSpec:
    """Each phone keeps the partition it was launched with; the partitions of lost phones go to the others."""
    partitions = spec.data.partitions or tuple(Partition(rank.phone, rank.batch) for rank in spec.ranks)
    names = [phone.name for phone in phones]
    batches = batches_by_partition(partitions, names, spec.compute.min_micro_batch)
    data = replace(spec.data, partitions=partitions, assignments=assign_slices(partitions, names, batches))
    return replace(spec, data=data, ranks=make_ranks(phones, batches))


def _keep_communication(spec: RunSpec, choice: CommPlanEvent) -> RunSpec:
    """Settings chosen by measurement are not measured again: other buckets would round differently.

    The choice comes from a phone, so only values that a user could have asked for are accepted.
    """
    kept = spec.communication
    if kept.algorithm == AUTO:
        kept = replace(kept, algorithm=choice.algorithm)
        if not kept.group_size and choice.group <= len(spec.ranks):
            kept = replace(kept, group_size=choice.group)
    if kept.wire == AUTO:
        kept = replace(kept, wire=choice.wire)
    if not kept.bucket_bytes and choice.bucket_bytes >= MIN_BUCKET_BYTES:
        kept = replace(kept, bucket_bytes=choice.bucket_bytes)
    return replace(spec, communication=kept)
