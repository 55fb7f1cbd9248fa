"""A run in a log file or pipe: one line per phase and event, and a step line every few seconds. All on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from orchestrator.records.activity import Activity
from orchestrator.records.events import Event, IncidentEvent, Progress
from orchestrator.records.run_status import RunStatus
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step
from orchestrator.view.run_format import (
    format_accuracy,
    format_phase,
    format_phone_event,
    format_silence,
    format_step,
)
from phone_agent.contract.schema import RunSpec

_STEP_LINE_EVERY_S = 5.0
_SILENCE_LINE_EVERY_S = 60.0


class PlainRunView:
    def __init__(self) -> None:
        self._printed = 0.0
        self._activity = Activity()
        self._waiting_for = ""
        self._silence_printed: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def phase(self, what: str, done: int, total: int) -> None:
        if done == total:
            err.print(format_phase(what, (done, total)), markup=False)

    def update(self, progress: Progress, event: Event) -> None:
        if event.kind == "warning":
            err.print(f"warning: {progress.warnings[-1]}", markup=False)
        if isinstance(event, IncidentEvent):
            err.print(event.message, markup=False, soft_wrap=True)
        if line := format_phone_event(event):
            err.print(line, markup=False, soft_wrap=True)
        if event.kind == "evaluate":
            line = f"step {progress.step}/{progress.steps}  {format_accuracy(progress)}"
            err.print(line, markup=False, soft_wrap=True)
        last = progress.step >= progress.steps
        if event.kind == "step" and (last or time.monotonic() - self._printed > _STEP_LINE_EVERY_S):
            self._printed = time.monotonic()
            err.print(format_step(progress), markup=False, soft_wrap=True)

    def refresh(self, _spec: RunSpec, _progress: Progress, activity: Activity, status: RunStatus) -> None:
        """What no event reports: what the supervisor is doing, and what the run waits for."""
        before, self._activity = self._activity, activity
        for what, (done, total) in activity.phases.items():
            if before.phases.get(what) != (done, total):
                self.phase(what, done, total)
        for text, shown in ((activity.doing, before.doing), (activity.problem, before.problem)):
            if text and text != shown:
                err.print(one_line(text), markup=False, soft_wrap=True)
        self._print_waiting(status)
        self._print_silence(status)

    def _print_waiting(self, status: RunStatus) -> None:
        """Once per change."""
        if status.waiting_for and status.waiting_for != self._waiting_for:
            err.print(f"waiting for {one_line(status.waiting_for)}", markup=False, soft_wrap=True)
            next_step(status.next_command)
        self._waiting_for = status.waiting_for

    def _print_silence(self, status: RunStatus) -> None:
        """Every now and then."""
        if not status.silent or status.waiting_for:
            self._silence_printed = None
        elif self._silence_printed is None or time.monotonic() - self._silence_printed > _SILENCE_LINE_EVERY_S:
            self._silence_printed = time.monotonic()
            err.print(format_silence(status), markup=False, soft_wrap=True)
