"""When which part of the gradients is complete."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
    """Front to back, in parts of at least bucket_bytes, each some steps after the last; the end of all ends a part."""
    done = _last_writes(schedule)
    found: list[Cut] = []
    start = step = 0
    for slot in packing.slots.values():
        step = max(step, done[slot.offset] + 1)
        end = slot.offset + prod(slot.shape)
        if (end - start) * FLOAT < bucket_bytes:
            continue
        if found and found[-1].step == step:
            start = found.pop().start
        found.append(Cut(step, start, end))
        start = end
    if start == packing.size or (found and found[-1].step == len(schedule.steps)):
        start = found.pop().start if found else 0
    return [*found, Cut(len(schedule.steps), start, packing.size)]


def _last_writes(schedule: Schedule) -> dict[int, int]:
    """By offset of the parameter in the gradients, the last step that writes there."""
    last: dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        if index >= schedule.backward:
            for place in step.places():
                if place.buffer.home == Home.GRADIENTS:
                    last[place.offset // FLOAT] = index
    return last
