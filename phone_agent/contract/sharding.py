"""Sharded data: which samples each phone holds, and which of them each rank takes at a step.

A run partitions the samples once, at launch, in proportion to the batches. The partitions and the order of samples
within each stay fixed for the whole run. When a phone is lost, other ranks take over slices of its partition
(`PartitionSlice`): every sample is still taken once per epoch, and a step has the same samples as without the loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from phone_agent.contract.dataset_manifest import Span
from phone_agent.contract.schema import SYNTHETIC, DataSpec, PartitionSlice


def is_replicated(data: DataSpec) -> bool:
    """Whether every phone has, or can generate, every sample."""
    return data.replicated or data.name == SYNTHETIC


def partition_batches(data: DataSpec, batches: Sequence[int]) -> list[int]:
    """The batch of each partition. `batches`: those of the ranks, which are the same until a phone is lost."""
    return [partition.batch for partition in data.partitions] or list(batches)


def rank_slices(data: DataSpec, batches: Sequence[int], rank: int) -> tuple[PartitionSlice, ...]:
    return data.assignments[rank] if data.assignments else (PartitionSlice(rank, 0, batches[rank]),)


def partition_span(samples: int, batches: Sequence[int], partition: int) -> Span:
    """The samples of a partition, in proportion to its batch."""
    before, total = sum(batches[:partition]), sum(batches)
    return samples * before // total, samples * (before + batches[partition]) // total


def even_spans(samples: int, phones: int) -> list[list[Span]]:
    return [[partition_span(samples, [1] * phones, phone)] for phone in range(phones)]


def rank_spans(data: DataSpec, batches: Sequence[int], rank: int) -> list[Span]:
    """All samples that a rank may take."""
    of_partitions = partition_batches(data, batches)
    needed = sorted({each.partition for each in rank_slices(data, batches, rank)})
    return [partition_span(data.samples, of_partitions, partition) for partition in needed]
