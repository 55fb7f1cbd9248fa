"""Assigns the partitions of a dataset to the phones that are left (see phone_agent.contract.sharding).

Each phone keeps its own partition, so few samples have to be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.plan.batch import apportion, apportion_at_least
from phone_agent.contract.schema import Partition, PartitionSlice


def batches_by_partition(partitions: Sequence[Partition], phones: Sequence[str], smallest: int = 1) -> tuple[int, ...]:
    """The batch of each phone. Their sum is the global batch.

    A phone with a partition keeps at least its batch, and a new phone takes over that of a lost one. What is left of
    lost partitions is added in proportion. Phones give up images only if there are more phones than partitions.
    """
    own = {partition.phone: partition.batch for partition in partitions}
    lost = iter([partition.batch for partition in partitions if partition.phone not in phones])
    batches = [own[phone] if phone in own else next(lost, 0) for phone in phones]
    total = sum(own.values())
    if not all(batches):
        return apportion_at_least(smallest, total, [batch or total / len(phones) for batch in batches])
    extra = apportion(total - sum(batches), batches)
    return tuple(batch + more for batch, more in zip(batches, extra, strict=True))


def assign_slices(
    partitions: Sequence[Partition], phones: Sequence[str], batches: Sequence[int]
) -> tuple[tuple[PartitionSlice, ...], ...]:
    """For each phone, slices that add up to its batch: of its own partition first, then of those without a phone."""
    assigned: list[list[PartitionSlice]] = [[] for _ in phones]
    missing = list(batches)
    free: list[PartitionSlice] = []

    def assign(rank: int, piece: PartitionSlice) -> None:
        assigned[rank].append(piece)
        missing[rank] -= piece.end - piece.first

    for number, partition in enumerate(partitions):
        kept = 0
        if partition.phone in phones:
            rank = phones.index(partition.phone)
            kept = min(partition.batch, batches[rank])
            assign(rank, PartitionSlice(number, 0, kept))
        if kept < partition.batch:
            free.append(PartitionSlice(number, kept, partition.batch))
    new_phones_first = sorted(range(len(phones)), key=lambda rank: bool(assigned[rank]))
    for rank in new_phones_first:
        while missing[rank]:
            piece = free.pop(0)
            end = min(piece.end, piece.first + missing[rank])
            assign(rank, PartitionSlice(piece.partition, piece.first, end))
            if end < piece.end:
                free.insert(0, PartitionSlice(piece.partition, end, piece.end))
    return tuple(map(tuple, assigned))
