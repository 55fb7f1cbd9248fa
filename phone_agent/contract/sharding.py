"""Who has which samples where not all phones have all: each a share, dealt once, when the run is launched.

Shares stay what they are for the whole run, and so does the order in which each is gone through. When a phone is lost,
others take its share's images of every step (`PartitionSlice`): every sample is still taken once an epoch, and a step
has the samples that it would have had without the loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from phone_agent.contract.dataset_manifest import Span
from phone_agent.contract.schema import SYNTHETIC, DataSpec, PartitionSlice


def everywhere(data: DataSpec) -> bool:
    """Every phone can have every sample."""
    return data.replicated or data.name == SYNTHETIC


def batches_of(data: DataSpec, batches: Sequence[int]) -> list[int]:
    """Of the shares; `batches` are the ranks'."""
    return [share.batch for share in data.partitions] or list(batches)


def turns_of(data: DataSpec, batches: Sequence[int], rank: int) -> tuple[PartitionSlice, ...]:
    return data.assignments[rank] if data.assignments else (PartitionSlice(rank, 0, batches[rank]),)


def span_of(samples: int, batches: Sequence[int], share: int) -> Span:
    """A share's samples: as many as its batch is of the global one."""
    before, total = sum(batches[:share]), sum(batches)
    return samples * before // total, samples * (before + batches[share]) // total


def even_spans(samples: int, phones: int) -> list[list[Span]]:
    return [[span_of(samples, [1] * phones, phone)] for phone in range(phones)]


def spans_here(data: DataSpec, batches: Sequence[int], rank: int) -> list[Span]:
    """All that a rank may come to take."""
    dealt = batches_of(data, batches)
    wanted = sorted({turn.partition for turn in turns_of(data, batches, rank)})
    return [span_of(data.samples, dealt, share) for share in wanted]
