"""Metrics of this attempt's steps, and the exchange of each step's results between all ranks."""

from __future__ import annotations

import time

import numpy as np

from phone_agent.comm.powersgd import uncompressed_steps
from phone_agent.comm.world import World
from phone_agent.contract.schema import RunSpec
from phone_agent.train import progress
from phone_agent.train.events import EventLog
from phone_agent.train.progress import RankStep


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
        rows = progress.exchange(own, self._world, self._spec, step)
        now = time.monotonic()
        merged = progress.merge_steps(rows, self._spec, step, now - self._step_started)
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
