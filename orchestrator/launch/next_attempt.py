"""The next attempt of a run that lost phones, or got some back: the same work, dealt anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.data_shards import batches_by_share, turns_by_share
from orchestrator.launch.run_spec import ALGORITHMS, SMALLEST_BUCKET, WIRES
from orchestrator.plan.apportion import deal
from phone_agent.contract.schema import Partition, RankSpec, RunSpec
from phone_agent.contract.sharding import is_replicated

AUTO = "auto"


def next_attempt(
    spec: RunSpec,
    phones: Sequence[Phone],
    number: int,
    *,
    batches: Sequence[int] = (),
    choice: Mapping[str, Any] | None = None,
) -> RunSpec:
    """Ranks follow the phones' order. `batches`: what each rank of the last attempt took in the end, where that is not
    what it began with; `choice`: how gradients travelled, which stays as it is."""
    if spec.global_batch < len(phones):
        raise UsageError(f"a global batch of {spec.global_batch} is not enough for {len(phones)} phones")
    dealt = _by_speed(spec, phones, batches) if is_replicated(spec.data) else _by_share(spec, phones)
    return _travelling(replace(dealt, attempt=number), choice or {})


def _by_speed(spec: RunSpec, phones: Sequence[Phone], batches: Sequence[int]) -> RunSpec:
    """Anybody can take anything: in proportion to what each took."""
    took = batches if len(batches) == len(spec.ranks) else [rank.batch for rank in spec.ranks]
    known = {rank.phone: float(batch) for rank, batch in zip(spec.ranks, took, strict=True)}
    usual = sum(known.values()) / len(known)
    weights = [known.get(phone.name, usual) for phone in phones]
    return _ranked(spec, phones, deal(spec.global_batch, weights if any(weights) else [1.0] * len(phones)))


def _by_share(spec: RunSpec, phones: Sequence[Phone]) -> RunSpec:
    """Each keeps the share it was launched with; those of the lost are dealt to the others."""
    shares = spec.data.partitions or tuple(Partition(rank.phone, rank.batch) for rank in spec.ranks)
    names = [phone.name for phone in phones]
    batches = batches_by_share(shares, names)
    data = replace(spec.data, partitions=shares, assignments=turns_by_share(shares, names, batches))
    return _ranked(replace(spec, data=data), phones, batches)


def _ranked(spec: RunSpec, phones: Sequence[Phone], batches: Sequence[int]) -> RunSpec:
    ranks = tuple(
        RankSpec(rank, phone.name, phone.switch, phone.port, str(phone.address), batch)
        for rank, (phone, batch) in enumerate(zip(phones, batches, strict=True))
    )
    return replace(spec, ranks=ranks)


def _travelling(spec: RunSpec, choice: Mapping[str, Any]) -> RunSpec:
    """What measuring decided is not measured again: sums in other pieces would round otherwise. Phones may say
    anything: only what a person could have asked for is taken."""
    asked = spec.communication
    algorithm, wire, size, group = (choice.get(name) for name in ("algorithm", "wire", "bucket_bytes", "group"))
    if asked.algorithm == AUTO and algorithm in ALGORITHMS:
        asked = replace(asked, algorithm=str(algorithm))
        if not asked.group_size and type(group) is int and 0 <= group <= len(spec.ranks):
            asked = replace(asked, group_size=group)
    if asked.wire == AUTO and wire in WIRES:
        asked = replace(asked, wire=str(wire))
    if not asked.bucket_bytes and type(size) is int and SMALLEST_BUCKET <= size < 1 << 31:
        asked = replace(asked, bucket_bytes=size)
    return replace(spec, communication=asked)
