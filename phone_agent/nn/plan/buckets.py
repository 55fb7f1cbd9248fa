"""Gradient buckets: slices of the packed gradients that are reduced together, and which ops use each."""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.nn.packing import Packing
from phone_agent.nn.plan.ops import FLOAT, MemorySpace
from phone_agent.nn.plan.schedule import Schedule

LAST_BUCKET_DIVISOR = 4  # the last bucket is at most 1/4 as long as the others


@dataclass(frozen=True)
class Bucket:
    """values[start:end] and gradients[start:end].

    Op `first_read` is the first in forward that reads the values. From op `complete_at` on, nothing uses the bucket.
    """

    start: int
    end: int
    first_read: int
    complete_at: int


def bucket_slices(packing: Packing, bucket_bytes: int) -> list[slice]:
    """Slices that cover the whole buffer: trainable buckets, then all frozen parameters, if there are any."""
    slices = trainable_bucket_slices(packing, bucket_bytes)
    frozen = slice(packing.trainable_size, packing.size)
    return [*slices, frozen] if frozen.start < frozen.stop else slices


def trainable_bucket_slices(packing: Packing, bucket_bytes: int) -> list[slice]:
    """Buckets of whole parameters and their padding, of at least `bucket_bytes` each except for the last two.

    They are the same on every phone.

    The last bucket is complete last and needed first, so nothing hides its transfer: it is as short as possible.
    """
    slices: list[slice] = []
    start = 0
    tail = packing.trainable_size - bucket_bytes // LAST_BUCKET_DIVISOR // FLOAT
    for slot in packing.slots.values():
        end = slot.end
        if end > packing.trainable_size:
            break
        if (end - start) * FLOAT >= bucket_bytes or slot.offset < tail <= end < packing.trainable_size:
            slices.append(slice(start, end))
            start = end
    return slices if start == packing.trainable_size else [*slices, slice(start, packing.trainable_size)]


def schedule_buckets(schedule: Schedule, packing: Packing, bucket_bytes: int) -> list[Bucket]:
    """A bucket is complete when backward no longer reads its values: data gradients still read the weights."""
    first, last = _uses(schedule)
    buckets: list[Bucket] = []
    complete_at = 0
    for part in bucket_slices(packing, bucket_bytes):
        offsets = [slot.offset for slot in packing.slots.values() if part.start <= slot.offset < part.stop]
        complete_at = max(complete_at, *(last[offset] + 1 for offset in offsets))
        buckets.append(Bucket(part.start, part.stop, min(first[offset] for offset in offsets), complete_at))
    return buckets


def _uses(schedule: Schedule) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the last op that reads a parameter or writes its gradient, by offset of the parameter."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, op in enumerate(schedule.ops):
        for pointer in op.pointers():
            if pointer.buffer.space in (MemorySpace.VALUES, MemorySpace.GRADIENTS):
                offset = pointer.offset // FLOAT
                first.setdefault(offset, index)
                last[offset] = index
    return first, last
