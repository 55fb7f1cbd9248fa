"""What a provision did, as values: steps of phones, phones of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from orchestrator.inventory.model import Phone

LAST_STEP: Final = "selftest"


class StepStatus(StrEnum):
    OK = "ok"  # nothing to do
    CHANGED = "changed"
    PLANNED = "planned"  # a dry run: would change
    FAILED = "failed"
    SKIPPED = "skipped"  # could not be done, and the phone is a worker without it
    UNFINISHED = "unfinished"  # interrupted before the last step: of phones only


@dataclass(frozen=True)
class StepResult:
    step: str
    status: StepStatus
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    error: str | None = None
    remedy: str | None = None

    def as_json(self) -> dict[str, Any]:
        told = {"changes": list(self.changes), "error": self.error, "remedy": self.remedy}
        given = {key: value for key, value in told.items() if value}
        return {"step": self.step, "status": self.status.value, "seconds": round(self.seconds, 3), **given}


@dataclass(frozen=True)
class PhoneReport:
    phone: Phone
    steps: tuple[StepResult, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def failure(self) -> StepResult | None:
        return next((step for step in self.steps if step.status is StepStatus.FAILED), None)

    @property
    def status(self) -> StepStatus:
        """The most telling one: failed, else unfinished, else planned, else changed, else ok."""
        found = {step.status for step in self.steps}
        if StepStatus.FAILED not in found and LAST_STEP not in {step.step for step in self.steps}:
            return StepStatus.UNFINISHED
        order = (StepStatus.FAILED, StepStatus.PLANNED, StepStatus.CHANGED)
        return next((status for status in order if status in found), StepStatus.OK)

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(change for step in self.steps for change in step.changes)

    def with_steps(self, *steps: StepResult) -> PhoneReport:
        return PhoneReport(self.phone, (*self.steps, *steps), self.warnings)

    def as_json(self) -> dict[str, Any]:
        return {
            "phone": self.phone.name,
            "port": self.phone.where,
            "address": str(self.phone.address),
            "status": self.status.value,
            "warnings": list(self.warnings),
            "steps": [step.as_json() for step in self.steps],
        }


@dataclass(frozen=True)
class Report:
    phones: tuple[PhoneReport, ...]  # in ring order
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    release: str = ""
    snapshots: dict[str, str] = field(default_factory=dict)  # architecture -> snapshot id

    def __iter__(self) -> Iterator[PhoneReport]:
        return iter(self.phones)

    @property
    def failed(self) -> tuple[PhoneReport, ...]:
        return tuple(report for report in self.phones if report.failure)

    @property
    def ok(self) -> bool:
        return not self.failed and not self.of(StepStatus.UNFINISHED)

    def of(self, status: StepStatus) -> tuple[PhoneReport, ...]:
        return tuple(report for report in self.phones if report.status is status)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "dry_run": self.dry_run,
            "release": self.release,
            "snapshots": self.snapshots,
            "notes": list(self.notes),
            "phones": [report.as_json() for report in self.phones],
        }
