"""The next attempt of a run that lost phones or got some back: the same work on other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.partitions import assign_slices, batches_by_partition
from orchestrator.launch.resolve import MIN_BUCKET_BYTES
from orchestrator.launch.run_spec import make_ranks
from orchestrator.plan.batch import apportion_at_least
from phone_agent.contract.choices import ALGORITHMS, AUTO, WIRES
from phone_agent.contract.schema import Partition, RunSpec
from phone_agent.contract.sharding import is_replicated


def next_attempt(
    spec: RunSpec,
    phones: Sequence[Phone],
    number: int,
    *,
    batches: Sequence[int] = (),
    choice: Mapping[str, Any] | None = None,
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
    return _keep_communication(replace(assigned, attempt=number), choice or {})


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


def _keep_communication(spec: RunSpec, choice: Mapping[str, Any]) -> RunSpec:
    """Settings chosen by measurement are not measured again: other buckets would round differently.

    The choice comes from a phone, so only values that a user could have asked for are accepted.
    """
    kept = spec.communication
    algorithm, wire, size, group = (choice.get(name) for name in ("algorithm", "wire", "bucket_bytes", "group"))
    if kept.algorithm == AUTO and algorithm in ALGORITHMS:
        kept = replace(kept, algorithm=str(algorithm))
        if not kept.group_size and type(group) is int and 0 <= group <= len(spec.ranks):
            kept = replace(kept, group_size=group)
    if kept.wire == AUTO and wire in WIRES:
        kept = replace(kept, wire=str(wire))
    if not kept.bucket_bytes and type(size) is int and MIN_BUCKET_BYTES <= size < 1 << 31:
        kept = replace(kept, bucket_bytes=size)
    return replace(spec, communication=kept)
