"""The parts in which gradients are handed over, and when forward and backward touch each."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from phone_agent.nn.packing import Packing
from phone_agent.nn.plan.ops import FLOAT, MemorySpace
from phone_agent.nn.plan.schedule import Schedule

LAST_BUCKET_DIVISOR = 4  # times shorter than the others, or less


@dataclass(frozen=True)
class Bucket:
    """Values and gradients [start:end]. Forward first reads them at step `read`; from `done` on nothing does."""

    start: int
    end: int
    read: int
    done: int


def bucket_slices(packing: Packing, bucket_bytes: int) -> list[slice]:
    """All of the buffer, front to back: what learns, and last what is frozen, if anything is."""
    found = trainable_bucket_slices(packing, bucket_bytes)
    return [*found, slice(packing.trainable_size, packing.size)] if packing.trainable_size < packing.size else found


def trainable_bucket_slices(packing: Packing, bucket_bytes: int) -> list[slice]:
    """Whole parameters, front to back, of at least bucket_bytes each but for the last two: the same on every phone.

    The last one is ready last and needed first, so nothing hides its way: it is cut as short as parameters allow.
    """
    found: list[slice] = []
    start = 0
    tail = packing.trainable_size - bucket_bytes // LAST_BUCKET_DIVISOR // FLOAT
    for slot in packing.slots.values():
        end = slot.offset + prod(slot.shape)
        if end > packing.trainable_size:
            break
        if (end - start) * FLOAT >= bucket_bytes or slot.offset < tail <= end < packing.trainable_size:
            found.append(slice(start, end))
            start = end
    return found if start == packing.trainable_size else [*found, slice(start, packing.trainable_size)]


def schedule_buckets(schedule: Schedule, packing: Packing, bucket_bytes: int) -> list[Bucket]:
    """Backward's data gradients read weights whose own gradients are there already: those count as touched, too."""
    read, last = _touched(schedule)
    found: list[Bucket] = []
    done = 0
    for part in bucket_slices(packing, bucket_bytes):
        offsets = [slot.offset for slot in packing.slots.values() if part.start <= slot.offset < part.stop]
        done = max(done, *(last[offset] + 1 for offset in offsets))
        found.append(Bucket(part.start, part.stop, min(read[offset] for offset in offsets), done))
    return found


def _touched(schedule: Schedule) -> tuple[dict[int, int], dict[int, int]]:
    """By offset of the parameter, the first and the last step that reads its value or writes its gradient."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        for place in step.places():
            if place.buffer.home in (MemorySpace.VALUES, MemorySpace.GRADIENTS):
                offset = place.offset // FLOAT
                first.setdefault(offset, index)
                last[offset] = index
    return first, last
