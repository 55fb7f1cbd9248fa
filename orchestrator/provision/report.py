"""Results of a provision: per phone, and for all phones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from orchestrator.inventory.model import Phone
from orchestrator.provision.engine import StepReport, StepResult, StepSummary

LAST_STEP: Final = "selftest"


@dataclass(frozen=True)
class PhoneProvisionReport(StepSummary):
    last_step: ClassVar[str] = LAST_STEP

    phone: Phone
    steps: tuple[StepResult, ...] = ()
    warnings: tuple[str, ...] = ()

    def with_steps(self, *steps: StepResult) -> PhoneProvisionReport:
        return replace(self, steps=(*self.steps, *steps))

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
class ProvisionReport(StepReport[PhoneProvisionReport]):
    phones: tuple[PhoneProvisionReport, ...]  # in ring order
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    release: str = ""
    snapshots: dict[str, str] = field(default_factory=dict)  # architecture -> snapshot id

    def __iter__(self) -> Iterator[PhoneProvisionReport]:
        return iter(self.phones)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "dry_run": self.dry_run,
            "release": self.release,
            "snapshots": self.snapshots,
            "notes": list(self.notes),
            "phones": [report.as_json() for report in self.phones],
        }
