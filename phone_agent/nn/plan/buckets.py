"""When which part of the gradients is complete."""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.nn.packing import Packing
from phone_agent.nn.plan.schedule import Schedule
from phone_agent.nn.plan.steps import FLOAT, Home


@dataclass(frozen=True)
class Cut:
    """After the steps before `step`, gradients[start:end] do not change any more."""

    step: int
    start: int
    end: int


def cuts(schedule: Schedule, packing: Packing, bucket_bytes: int) -> list[Cut]:
    """Front to back, in parts of at least bucket_bytes; the last step belongs to the last part."""
    done = _last_writes(schedule)
    found: list[Cut] = []
    start = step = 0
    for slot in packing.slots.values():
        size = 1
        for side in slot.shape:
            size *= side
        step = max(step, done[slot.offset] + 1)
        end = slot.offset + size
        if (end - start) * FLOAT >= bucket_bytes:
            found.append(Cut(step, start, end))
            start = end
    if start < packing.size or not found:
        found.append(Cut(len(schedule.steps), start, packing.size))
    found[-1] = Cut(len(schedule.steps), found[-1].start, found[-1].end)
    return found


def _last_writes(schedule: Schedule) -> dict[int, int]:
    """By offset of the parameter in the gradients, the last step that writes there."""
    last: dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        if index >= schedule.backward:
            for place in step.places():
                if place.buffer.home == Home.GRADIENTS:
                    last[place.offset // FLOAT] = index
    return last
