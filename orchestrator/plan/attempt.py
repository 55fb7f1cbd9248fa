"""The next attempt of a run that lost phones, or got some back: the same work, dealt anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.plan.run import ALGORITHMS, SMALLEST_BUCKET, WIRES
from phone_agent.schema import RankSpec, RunSpec

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
    took = batches if len(batches) == len(spec.ranks) else [rank.batch for rank in spec.ranks]
    known = {rank.phone: float(batch) for rank, batch in zip(spec.ranks, took, strict=True)}
    usual = sum(known.values()) / len(known)
    weights = [known.get(phone.name, usual) for phone in phones]
    dealt = deal(spec.global_batch, weights if any(weights) else [1.0] * len(phones))
    ranks = tuple(
        RankSpec(rank, phone.name, phone.switch, phone.port, str(phone.address), batch)
        for rank, (phone, batch) in enumerate(zip(phones, dealt, strict=True))
    )
    return _travelling(replace(spec, ranks=ranks, attempt=number), choice or {})


def deal(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """In proportion, by largest remainder, one each at least. Whole weights that add up to it stay as they are."""
    parts = [Fraction(weight) for weight in weights]
    exact = [total * part / sum(parts) for part in parts]
    whole = [int(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda rank: (whole[rank] - exact[rank], rank))
    for rank in by_rest[: total - sum(whole)]:
        whole[rank] += 1
    while 0 in whole:
        whole[whole.index(max(whole))] -= 1
        whole[whole.index(0)] += 1
    return tuple(whole)


def _travelling(spec: RunSpec, choice: Mapping[str, Any]) -> RunSpec:
    """What measuring decided is not measured again: sums in other pieces would round otherwise. Phones may say
    anything: only what a person could have asked for is taken."""
    algorithm, wire, size = (choice.get(name) for name in ("algorithm", "wire", "bucket_bytes"))
    if spec.algorithm == AUTO and algorithm in ALGORITHMS:
        spec = replace(spec, algorithm=str(algorithm))
    if spec.wire == AUTO and wire in WIRES:
        spec = replace(spec, wire=str(wire))
    if not spec.bucket_bytes and type(size) is int and SMALLEST_BUCKET <= size < 1 << 31:
        spec = replace(spec, bucket_bytes=size)
    return spec
