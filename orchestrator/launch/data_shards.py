"""Shares of samples among the phones there are now (see phone_agent.contract.sharding): little has to travel."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.plan.apportion import apportion, deal
from phone_agent.contract.schema import Partition, PartitionSlice


def batches_by_share(shares: Sequence[Partition], phones: Sequence[str]) -> tuple[int, ...]:
    """Who had a share keeps at least that; a newcomer takes over one that was lost; what is left of those is added to
    all in proportion. Only where there are more phones than shares does anybody give some up."""
    own = {share.phone: share.batch for share in shares}
    lost = iter([share.batch for share in shares if share.phone not in phones])
    taken = [own[phone] if phone in own else next(lost, 0) for phone in phones]
    total = sum(own.values())
    if not all(taken):
        return deal(total, [batch or total / len(phones) for batch in taken])
    more = apportion(total - sum(taken), taken)
    return tuple(batch + some for batch, some in zip(taken, more, strict=True))


def turns_by_share(
    shares: Sequence[Partition], phones: Sequence[str], batches: Sequence[int]
) -> tuple[tuple[PartitionSlice, ...], ...]:
    """For each phone as many images of a step as its batch has: of its own share first."""
    turns: list[list[PartitionSlice]] = [[] for _ in phones]
    wanted = list(batches)
    left: list[PartitionSlice] = []
    for number, share in enumerate(shares):
        kept = min(share.batch, batches[phones.index(share.phone)]) if share.phone in phones else 0
        if kept:
            _take(turns, wanted, phones.index(share.phone), PartitionSlice(number, 0, kept))
        if kept < share.batch:
            left.append(PartitionSlice(number, kept, share.batch))
    newcomers_first = sorted(range(len(phones)), key=lambda rank: bool(turns[rank]))
    for rank in newcomers_first:
        while wanted[rank]:
            turn = left.pop(0)
            cut = min(turn.end, turn.first + wanted[rank])
            _take(turns, wanted, rank, PartitionSlice(turn.partition, turn.first, cut))
            if cut < turn.end:
                left.insert(0, PartitionSlice(turn.partition, cut, turn.end))
    return tuple(map(tuple, turns))


def _take(turns: list[list[PartitionSlice]], wanted: list[int], rank: int, turn: PartitionSlice) -> None:
    turns[rank].append(turn)
    wanted[rank] -= turn.end - turn.first
