"""After which steps a checkpoint is written: every N steps, once an interval has passed, on request, and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.schema import RunSpec


class CheckpointSchedule:
    """The same on all ranks. Only rank 0 reads the clock: its decision reaches the others with the results of a step.

    `age_s`: of the newest checkpoint when the attempt begins.
    """

    def __init__(self, spec: RunSpec, age_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._recovery, self._clock = spec.steps, spec.recovery, clock
        self._saved_at = clock() - age_s
        self._added: set[int] = set()

    @property
    def interval_passed(self) -> bool:
        """Since the newest checkpoint. Always False if checkpoints depend on steps only."""
        interval_s = 60 * self._recovery.checkpoint_minutes
        return bool(interval_s) and self._clock() - self._saved_at >= interval_s

    def add(self, step: int) -> None:
        """A checkpoint follows this step, as all ranks have agreed."""
        self._added.add(step)
        self._saved_at = self._clock()

    def is_due(self, step: int) -> bool:
        every = self._recovery.checkpoint_every
        return step == self._steps or step in self._added or bool(every and step % every == 0)


def newest_checkpoint_age_s(run: Path) -> float:
    """Seconds since this phone wrote its newest checkpoint, or since the run was staged here. Restarts do not postpone
    the next checkpoint."""
    files = [*run.glob(layout.CHECKPOINTS), *run.glob(layout.RUN_FILE)]
    written = [file.stat().st_mtime for file in files if file.exists()]
    return max(0.0, time.time() - max(written)) if written else 0.0
