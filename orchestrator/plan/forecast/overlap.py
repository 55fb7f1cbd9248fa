"""Simulates training steps with overlapped communication, as phone_agent.train.overlap runs them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.api.forecast import Chunk

SIMULATED_STEPS = 8  # after which the time per step no longer changes
AVERAGED_STEPS = 4  # the last of them


@dataclass(frozen=True)
class StepTiming:
    """One step of one rank; all ranks are identical. BucketTimes are seconds of compute since the step began.

    By part of the gradients: when backward has completed it (`ready`), when forward first reads its weights (`needed`),
    how long its optimizer update takes. By chunk: how long its allreduce takes.
    """

    compute_s: float
    ready: Sequence[float]
    needed: Sequence[float]
    update_s: Sequence[float]
    allreduce_s: Sequence[float]

    @property
    def communication_s(self) -> float:
        return sum(self.allreduce_s) + sum(self.update_s)


def overlapped_step_s(timing: StepTiming, order: Sequence[Chunk]) -> float:
    """Seconds per step if pieces are sent in this order while others are still being computed."""
    updated = [0.0] * len(timing.ready)  # when each part has its new weights
    now = link_free = 0.0
    begins: list[float] = []
    for _ in range(SIMULATED_STEPS):
        begins.append(now)
        ready, now = _compute(timing, updated, now)
        link_free, updated = _communicate(timing, order, ready, link_free)
    return (begins[-1] - begins[-1 - AVERAGED_STEPS]) / AVERAGED_STEPS


def sequential_step_s(timing: StepTiming) -> float:
    return timing.compute_s + timing.communication_s


def _compute(timing: StepTiming, updated: Sequence[float], begin: float) -> tuple[list[float], float]:
    """When each part is ready, and when the step ends. Forward waits for weights that are not updated yet."""
    waited = 0.0
    for needed, available in sorted(zip(timing.needed, updated, strict=True)):
        waited = max(waited, available - begin - needed)
    return [begin + waited + after for after in timing.ready], begin + waited + timing.compute_s


def _communicate(
    timing: StepTiming, order: Sequence[Chunk], ready: Sequence[float], link_free: float
) -> tuple[float, list[float]]:
    """When the link is free again, and when each part has its new weights."""
    updated = [0.0] * len(timing.ready)
    for chunk in order:
        link_free = max(link_free, ready[chunk.bucket]) + timing.allreduce_s[chunk.number]
        if chunk.last:
            link_free += timing.update_s[chunk.bucket]
            updated[chunk.bucket] = link_free
    return link_free, updated
