"""What the ranks tell each other each step, in one small exchange; rank 0 makes the run's step event of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from phone_agent.comm.world import World
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import RankSpec, RunSpec
from phone_agent.device.condition import Condition
from phone_agent.nn.packing import State
from phone_agent.train import schedules


class DivergedError(AgentError):
    """Every rank finds this at the same step."""

    code = ErrorCode.DIVERGED


@dataclass(frozen=True)
class RankStep:
    """One rank's step. `comm_s` is what its computing waited for communication, `reduce_s` what that took in all."""

    loss: float
    compute_s: float
    comm_s: float
    condition: Condition = field(default_factory=Condition)
    reduce_s: float = 0.0
    images: int = 1
    leave: bool = False  # somebody asked this attempt to end at a step's end

    def row(self) -> list[float]:
        own = (self.loss, self.compute_s, self.comm_s, self.reduce_s, self.images, self.leave)
        return [*own, *astuple(self.condition)]

    @classmethod
    def of(cls, row: Sequence[float]) -> RankStep:
        loss, compute_s, comm_s, reduce_s, images, leave, *condition = row
        return cls(loss, compute_s, comm_s, Condition(*condition), reduce_s, round(images), bool(leave))


def exchange(own: RankStep, world: World, spec: RunSpec, step: int) -> list[RankStep]:
    """Everybody's step, by rank. Raises on all ranks when one has diverged."""
    rows = [RankStep.of(row) for row in world.allgather(np.array(own.row(), np.float64)).tolist()]
    diverged = [rank for rank, row in zip(spec.ranks, rows, strict=True) if not math.isfinite(row.loss)]
    if diverged:
        first, others = where(diverged[0]), f" and {len(diverged) - 1} more" if len(diverged) > 1 else ""
        raise DivergedError(f"step {step}: the loss is not a number on {first}{others}: lower the learning rate")
    return rows


def check_values(state: State, world: World, spec: RunSpec, step: int) -> None:
    """A step may spoil values whose loss was still a number. Raises on all ranks when one's are spoiled."""
    ends = [
        end for buffer in (state.values, state.statistics) for end in (buffer.min(initial=0), buffer.max(initial=0))
    ]
    sound = world.allgather(np.array([np.isfinite(ends).all()], np.float64))[:, 0]
    for rank in spec.ranks:
        if not sound[rank.rank]:
            raise DivergedError(f"step {step}: {where(rank)} has values that are not numbers: lower the learning rate")


def merge(rows: list[RankStep], spec: RunSpec, step: int, step_s: float) -> dict[str, Any]:
    """The slowest rank sets the pace, and the rank that waited least for the others shows what communication costs."""
    loss = sum(row.loss * row.images for row in rows) / sum(row.images for row in rows)
    slowest = max(range(len(rows)), key=lambda index: rows[index].compute_s)
    return {
        "loss": loss,
        "learning_rate": schedules.rate(spec.optimizer, spec.schedule, step, spec.steps),
        "images_per_s": spec.global_batch / step_s,
        "step_s": step_s,
        "compute_s": rows[slowest].compute_s,
        "comm_s": min(row.comm_s for row in rows),
        "reduce_s": min(row.reduce_s for row in rows),
        "slowest": spec.ranks[slowest].phone,
        "hottest": _hottest(rows, spec),
    }


def where(rank: RankSpec) -> str:
    return f"{rank.phone} ({rank.switch}:{rank.port})"


def _hottest(rows: list[RankStep], spec: RunSpec) -> dict[str, Any] | None:
    known = [index for index, row in enumerate(rows) if math.isfinite(row.condition.temperature_c)]
    if not known:
        return None
    hottest = max(known, key=lambda index: rows[index].condition.temperature_c)
    return {"phone": spec.ranks[hottest].phone, "temperature_c": rows[hottest].condition.temperature_c}
