"""Step results: exchanged between all ranks after each step, and merged by rank 0 into the run's step event."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from phone_agent.comm.powersgd import uncompressed_steps
from phone_agent.comm.world import World
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.nn.packing import State
from phone_agent.train import schedules
from phone_agent.train.events import EventLog, location
from phone_agent.train.rank_steps import RankStep, RankSteps


class DivergedError(AgentError):
    """Training diverged. All ranks raise this at the same step."""

    code = ErrorCode.DIVERGED


def exchange(own: RankStep, world: World, spec: RunSpec, step: int) -> RankSteps:
    """The steps of all ranks. Raises on every rank if the loss of any is not finite."""
    steps = RankSteps(world.allgather(own.to_row()))
    diverged = np.flatnonzero(~np.isfinite(steps.loss))
    if diverged.size:
        first, others = location(spec.ranks[diverged[0]]), f" and {diverged.size - 1} more" if diverged.size > 1 else ""
        raise DivergedError(f"step {step}: the loss is not finite on {first}{others}: lower the learning rate")
    return steps


def check_finite(state: State, world: World, spec: RunSpec, step: int) -> None:
    """An update may produce non-finite weights although the loss was finite. Raises on every rank if any has some."""
    extremes = [
        end for buffer in (state.values, state.statistics) for end in (buffer.min(initial=0), buffer.max(initial=0))
    ]
    finite = world.allgather(np.array([np.isfinite(extremes).all()], np.float64))[:, 0]
    if not finite.all():
        first = location(spec.ranks[int(np.argmin(finite))])
        raise DivergedError(f"step {step}: weights on {first} are not finite: lower the learning rate")


def merge_steps(steps: RankSteps, spec: RunSpec, step: int, step_s: float) -> dict[str, Any]:
    """Compute time is that of the slowest rank; communication time is that of the rank that waited least for others."""
    slowest = int(np.argmax(steps.compute_s))
    return {
        "loss": float((steps.loss * steps.images).sum() / steps.images.sum()),
        "learning_rate": schedules.learning_rate(spec.optimizer, spec.schedule, step, spec.steps),
        "images_per_s": spec.global_batch / step_s,
        "step_s": step_s,
        "compute_s": float(steps.compute_s[slowest]),
        "comm_s": float(steps.comm_s.min()),
        "reduce_s": float(steps.reduce_s.min()),
        "slowest": spec.ranks[slowest].phone,
        "hottest": _hottest(steps, spec),
    }


def _hottest(steps: RankSteps, spec: RunSpec) -> dict[str, Any] | None:
    temperatures = np.nan_to_num(steps.conditions.column("temperature_c"), nan=-np.inf, posinf=-np.inf)
    hottest = int(np.argmax(temperatures))
    if not np.isfinite(temperatures[hottest]):
        return None
    return {"phone": spec.ranks[hottest].phone, "temperature_c": float(temperatures[hottest])}


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

    def report(self, step: int, own: RankStep) -> RankSteps:
        """Exchange results and write the step event. Returns the results of all ranks."""
        steps = exchange(own, self._world, self._spec, step)
        now = time.monotonic()
        merged = merge_steps(steps, self._spec, step, now - self._step_started)
        self._events.write("step", step=step, **merged)
        self.loss, self._step_started = merged["loss"], now
        self.steps += 1
        if step > self._uncompressed:
            self._reduced += 1
            self._reduce_s += merged["reduce_s"]
        self.waited_s += steps.comm_s
        self.step_s += merged["step_s"]
        return steps

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
