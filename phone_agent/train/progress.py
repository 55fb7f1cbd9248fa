"""Step results: exchanged between all ranks after each step, and merged by rank 0 into the run's step event."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from phone_agent.comm.powersgd import uncompressed_steps
from phone_agent.comm.world import World
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.device.condition import Condition
from phone_agent.nn.packing import State
from phone_agent.train import schedules
from phone_agent.train.events import EventLog, location


class DivergedError(AgentError):
    """Training diverged. All ranks raise this at the same step."""

    code = ErrorCode.DIVERGED


@dataclass(frozen=True)
class RankStep:
    """One rank's step. `comm_s`: how long computing waited for communication; `reduce_s`: its whole duration."""

    loss: float
    compute_s: float
    comm_s: float
    condition: Condition = field(default_factory=Condition)
    reduce_s: float = 0.0
    images: int = 1
    yield_requested: bool = False  # this attempt should end after a common step

    def to_row(self) -> list[float]:
        own = (self.loss, self.compute_s, self.comm_s, self.reduce_s, self.images, self.yield_requested)
        return [*own, *astuple(self.condition)]

    @classmethod
    def from_row(cls, row: Sequence[float]) -> RankStep:
        loss, compute_s, comm_s, reduce_s, images, yield_requested, *condition = row
        return cls(loss, compute_s, comm_s, Condition(*condition), reduce_s, round(images), bool(yield_requested))


def exchange(own: RankStep, world: World, spec: RunSpec, step: int) -> list[RankStep]:
    """The steps of all ranks. Raises on every rank if the loss of any is not finite."""
    rows = [RankStep.from_row(row) for row in world.allgather(np.array(own.to_row(), np.float64)).tolist()]
    diverged = [rank for rank, row in zip(spec.ranks, rows, strict=True) if not math.isfinite(row.loss)]
    if diverged:
        first, others = location(diverged[0]), f" and {len(diverged) - 1} more" if len(diverged) > 1 else ""
        raise DivergedError(f"step {step}: the loss is not finite on {first}{others}: lower the learning rate")
    return rows


def check_finite(state: State, world: World, spec: RunSpec, step: int) -> None:
    """An update may produce non-finite weights although the loss was finite. Raises on every rank if any has some."""
    extremes = [
        end for buffer in (state.values, state.statistics) for end in (buffer.min(initial=0), buffer.max(initial=0))
    ]
    finite = world.allgather(np.array([np.isfinite(extremes).all()], np.float64))[:, 0]
    for rank in spec.ranks:
        if not finite[rank.rank]:
            raise DivergedError(f"step {step}: weights on {location(rank)} are not finite: lower the learning rate")


def merge_steps(rows: list[RankStep], spec: RunSpec, step: int, step_s: float) -> dict[str, Any]:
    """Compute time is that of the slowest rank; communication time is that of the rank that waited least for others."""
    loss = sum(row.loss * row.images for row in rows) / sum(row.images for row in rows)
    slowest = max(range(len(rows)), key=lambda index: rows[index].compute_s)
    return {
        "loss": loss,
        "learning_rate": schedules.learning_rate(spec.optimizer, spec.schedule, step, spec.steps),
        "images_per_s": spec.global_batch / step_s,
        "step_s": step_s,
        "compute_s": rows[slowest].compute_s,
        "comm_s": min(row.comm_s for row in rows),
        "reduce_s": min(row.reduce_s for row in rows),
        "slowest": spec.ranks[slowest].phone,
        "hottest": _hottest(rows, spec),
    }


def _hottest(rows: list[RankStep], spec: RunSpec) -> dict[str, Any] | None:
    known = [index for index, row in enumerate(rows) if math.isfinite(row.condition.temperature_c)]
    if not known:
        return None
    hottest = max(known, key=lambda index: rows[index].condition.temperature_c)
    return {"phone": spec.ranks[hottest].phone, "temperature_c": rows[hottest].condition.temperature_c}


class RunMetrics:
    """Updated by the communication thread."""

    def __init__(self, spec: RunSpec, world: World, events: EventLog) -> None:
        self._spec, self._world, self._events = spec, world, events
        self._step_started = time.monotonic()
        self.loss: float | None = None
        self.steps = 0  # of this attempt
        self.step_s = 0.0  # in total
        self._uncompressed = uncompressed_steps(spec.steps) if spec.communication.wire == "powersgd" else 0
        self._reduced = 0  # steps whose gradients were sent in the predicted wire format
        self._reduce_s = 0.0
        self.waited_s = np.zeros(world.size)  # by rank: how long computing waited for communication

    def start_step(self) -> None:
        """Restart the clock: evaluation, checkpoints and pauses are not part of a step."""
        self._step_started = time.monotonic()

    def report(self, step: int, own: RankStep) -> list[RankStep]:
        """Exchange results and write the step event. Returns the results of all ranks."""
        rows = exchange(own, self._world, self._spec, step)
        now = time.monotonic()
        merged = merge_steps(rows, self._spec, step, now - self._step_started)
        self._events.write("step", step=step, **merged)
        self.loss, self._step_started = merged["loss"], now
        self.steps += 1
        if step > self._uncompressed:
            self._reduced += 1
            self._reduce_s += merged["reduce_s"]
        self.waited_s += [row.comm_s for row in rows]
        self.step_s += merged["step_s"]
        return rows

    @property
    def images_per_s(self) -> float | None:
        return self.steps * self._spec.global_batch / self.step_s if self.steps else None

    def communication(self, limit_s: float | None) -> dict[str, float | None]:
        """How efficient gradient exchange was. `limit_s`: the shortest time per step that the links allow."""
        if not self.steps:
            return {"exposed_comm_fraction": None, "line_rate_fraction": None}
        return {
            "exposed_comm_fraction": float(self.waited_s.max()) / self.step_s,
            "line_rate_fraction": self._line_rate_fraction(limit_s),
        }

    def _line_rate_fraction(self, limit_s: float | None) -> float | None:
        """None with local steps, most of which send nothing."""
        if self._spec.communication.local_steps > 1 or not limit_s or not self._reduce_s:
            return None
        return limit_s / (self._reduce_s / self._reduced)
