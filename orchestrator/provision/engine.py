"""The step engine of `provision` and `bootstrap`, and the events that both emit for the progress display.

A step computes its changes from facts (`plan`) and makes them (`apply`). It has succeeded when `plan` finds nothing
left to change in facts that were collected afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone

TargetT = TypeVar("TargetT")
FactsT = TypeVar("FactsT")
DesiredT = TypeVar("DesiredT")
_TargetT_contra = TypeVar("_TargetT_contra", contravariant=True)
_FactsT_contra = TypeVar("_FactsT_contra", contravariant=True)
_DesiredT_contra = TypeVar("_DesiredT_contra", contravariant=True)
_ChangeT_co = TypeVar("_ChangeT_co", covariant=True)
_SummaryT = TypeVar("_SummaryT", bound="StepSummary")


class StepStatus(StrEnum):
    OK = "ok"  # nothing to do
    CHANGED = "changed"
    PLANNED = "planned"  # a dry run: would change
    FAILED = "failed"
    SKIPPED = "skipped"  # an optional step that failed
    UNFINISHED = "unfinished"  # interrupted before the last step; a status of phones, not of steps


@dataclass(frozen=True)
class StepResult:
    step: str
    status: StepStatus
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    error: str | None = None
    remedy: str | None = None

    def as_json(self) -> dict[str, Any]:
        optional = {"changes": list(self.changes), "error": self.error, "remedy": self.remedy}
        present = {key: value for key, value in optional.items() if value}
        return {"step": self.step, "status": self.status.value, "seconds": round(self.seconds, 3), **present}


class StepSummary:
    """Base of a phone's report: what its step results amount to."""

    last_step: ClassVar[str]  # a phone is finished once it has a result of this step
    phone: Phone
    warnings: tuple[str, ...]
    steps: tuple[StepResult, ...]

    @property
    def failure(self) -> StepResult | None:
        return next((step for step in self.steps if step.status is StepStatus.FAILED), None)

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(change for step in self.steps for change in step.changes)

    @property
    def status(self) -> StepStatus:
        """Failed, else unfinished, else planned, else changed, else ok."""
        found = {step.status for step in self.steps}
        if StepStatus.FAILED not in found and self.last_step not in {step.step for step in self.steps}:
            return StepStatus.UNFINISHED
        order = (StepStatus.FAILED, StepStatus.PLANNED, StepStatus.CHANGED)
        return next((status for status in order if status in found), StepStatus.OK)


class StepReport(Generic[_SummaryT]):
    """Base of the report of all phones."""

    phones: tuple[_SummaryT, ...]

    @property
    def failed(self) -> tuple[_SummaryT, ...]:
        return tuple(each for each in self.phones if each.failure)

    @property
    def ok(self) -> bool:
        return not self.failed and not self.of(StepStatus.UNFINISHED)

    def of(self, status: StepStatus) -> tuple[_SummaryT, ...]:
        return tuple(each for each in self.phones if each.status is status)


class Step(Protocol[_TargetT_contra, _FactsT_contra, _DesiredT_contra, _ChangeT_co]):
    @property
    def name(self) -> str: ...

    def plan(self, facts: _FactsT_contra, desired: _DesiredT_contra, /) -> tuple[_ChangeT_co, ...]:
        """What would change; `str()` describes each change. Empty: nothing to do."""
        ...

    def apply(self, target: _TargetT_contra, facts: _FactsT_contra, desired: _DesiredT_contra, /) -> None:
        """Make the changes. Raises PhoneError."""
        ...


def dry_run_result(step: str, changes: Iterable[object]) -> StepResult:
    planned = _descriptions(changes)
    return StepResult(step, StepStatus.PLANNED if planned else StepStatus.OK, changes=planned)


class StepRunner(Generic[TargetT, FactsT, DesiredT]):
    """Runs steps on one phone."""

    def __init__(
        self,
        target: TargetT,
        facts: FactsT,
        desired: DesiredT,
        *,
        collect_facts: Callable[[], FactsT],
        on_start: Callable[[str], None],
    ) -> None:
        """`on_start` is called with the name of each step that has something to change."""
        self.facts = facts  # the newest
        self._target = target
        self._desired = desired
        self._collect_facts = collect_facts
        self._on_start = on_start

    def run(
        self, steps: Sequence[Step[TargetT, FactsT, DesiredT, object]], *, patience_s: float = 0.0
    ) -> list[StepResult]:
        """Apply steps until one fails; then verify all of them with fresh facts.

        `patience_s`: how long after the start of the first step changes may take to show in the facts.
        """
        deadline = time.monotonic() + patience_s
        results: list[StepResult] = []
        for step in steps:
            results.append(self.apply(step))
            if results[-1].status is StepStatus.FAILED:
                return results
        changed = [step for step, result in zip(steps, results, strict=True) if result.status is StepStatus.CHANGED]
        return self.verify(changed, results, deadline) if changed else results

    def apply(self, step: Step[TargetT, FactsT, DesiredT, object]) -> StepResult:
        """Apply one step, without verifying it."""
        changes = _descriptions(step.plan(self.facts, self._desired))
        if not changes:
            return StepResult(step.name, StepStatus.OK)
        self._on_start(step.name)
        started = time.monotonic()
        try:
            step.apply(self._target, self.facts, self._desired)
        except PhoneError as error:
            return _failed(step.name, time.monotonic() - started, error)
        return StepResult(step.name, StepStatus.CHANGED, time.monotonic() - started, changes)

    def verify(
        self,
        changed: Sequence[Step[TargetT, FactsT, DesiredT, object]],
        results: Sequence[StepResult],
        deadline: float = 0.0,
    ) -> list[StepResult]:
        """The results, failed where a changed step still has something to change."""
        while True:
            try:
                self.facts = self._collect_facts()
            except PhoneError as error:
                return [*results[:-1], _failed(changed[-1].name, results[-1].seconds, error)]
            remaining = {step.name: _descriptions(step.plan(self.facts, self._desired)) for step in changed}
            if not any(remaining.values()) or time.monotonic() > deadline:
                return [_verified(result, remaining.get(result.step, ())) for result in results]

    def is_done(self, step: Step[TargetT, FactsT, DesiredT, object]) -> bool:
        """By the newest facts."""
        return not step.plan(self.facts, self._desired)


def _descriptions(changes: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, changes))


def _verified(result: StepResult, remaining: tuple[str, ...]) -> StepResult:
    if not remaining:
        return result
    return replace(
        result,
        status=StepStatus.FAILED,
        error=f"was applied without effect, still to do: {'; '.join(remaining)}",
        remedy="check that nothing else changes this phone at the same time, then run the command again",
    )


def _failed(step: str, seconds: float, error: PhoneError) -> StepResult:
    return StepResult(step, StepStatus.FAILED, seconds, error=error.message, remedy=error.remedy)


@dataclass(frozen=True)
class StageStarted:
    """A part of the work that all these phones do in parallel."""

    title: str
    phones: tuple[Phone, ...]


@dataclass(frozen=True)
class StepStarted:
    phone: Phone
    step: str


@dataclass(frozen=True)
class StepFinished:
    phone: Phone
    result: StepResult


@dataclass(frozen=True)
class PhoneFinished:
    """The phone has finished the stage, successfully or not."""

    phone: Phone


@dataclass(frozen=True)
class Note:
    message: str


Event = StageStarted | StepStarted | StepFinished | PhoneFinished | Note
OnEvent = Callable[[Event], None]
