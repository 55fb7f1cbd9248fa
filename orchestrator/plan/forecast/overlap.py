"""A training step with communication beside it, as train.overlap does it, played through. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.api.forecast import Piece

STEPS = 8  # after which nothing changes from step to step any more
MEASURED = 4  # of them, the last ones


@dataclass(frozen=True)
class Work:
    """Of one rank in a step, all ranks being alike. By part of the gradients: seconds of computing until backward has
    completed it and until forward first reads it, and what its update takes; by piece, what its sum takes."""

    compute_s: float
    ready: Sequence[float]
    needed: Sequence[float]
    updates: Sequence[float]
    sums: Sequence[float]

    @property
    def communication_s(self) -> float:
        return sum(self.sums) + sum(self.updates)


def beside(work: Work, order: Sequence[Piece]) -> float:
    """Seconds a step takes where pieces travel in this order while others are computed."""
    fresh = [0.0] * len(work.ready)  # when each part had its new values
    now = line_free = 0.0
    began: list[float] = []
    for _ in range(STEPS):
        began.append(now)
        ready, now = _computed(work, fresh, now)
        line_free, fresh = _carried(work, order, ready, line_free)
    return (began[-1] - began[-1 - MEASURED]) / MEASURED


def one_after_the_other(work: Work) -> float:
    return work.compute_s + work.communication_s


def _computed(work: Work, fresh: Sequence[float], began: float) -> tuple[list[float], float]:
    """When each part was ready, and the step's computing at its end. Forward waits for values that are not there."""
    waited = 0.0
    for needed, there in sorted(zip(work.needed, fresh, strict=True)):
        waited = max(waited, there - began - needed)
    return [began + waited + after for after in work.ready], began + waited + work.compute_s


def _carried(work: Work, order: Sequence[Piece], ready: Sequence[float], line_free: float) -> tuple[float, list[float]]:
    """When the line is free again, and when each part has its new values."""
    fresh = [0.0] * len(work.ready)
    for piece in order:
        line_free = max(line_free, ready[piece.part]) + work.sums[piece.number]
        if piece.last:
            line_free += work.updates[piece.part]
            fresh[piece.part] = line_free
    return line_free, fresh
