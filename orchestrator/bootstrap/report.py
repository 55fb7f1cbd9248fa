"""What a bootstrap did, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from orchestrator.bootstrap.steps.step import Action
from orchestrator.fleet.host_keys import HostKey
from orchestrator.inventory.model import Phone
from orchestrator.provision.report import StepResult, StepStatus

LAST_STEP: Final = "record"


@dataclass(frozen=True)
class PhoneReport:
    phone: Phone
    name: str  # as adb calls it
    serial: str
    told: str = ""  # model, Android version
    steps: tuple[StepResult, ...] = ()
    actions: tuple[Action, ...] = ()  # a dry run's; without adb: on this computer
    warnings: tuple[str, ...] = ()
    mac: str | None = None
    host_key: str | None = None

    @property
    def failure(self) -> StepResult | None:
        return next((step for step in self.steps if step.status is StepStatus.FAILED), None)

    @property
    def status(self) -> StepStatus:
        found = {step.status for step in self.steps}
        if StepStatus.FAILED in found:
            return StepStatus.FAILED
        if LAST_STEP not in {step.step for step in self.steps}:
            return StepStatus.UNFINISHED
        return next((one for one in (StepStatus.PLANNED, StepStatus.CHANGED) if one in found), StepStatus.OK)

    @property
    def changes(self) -> tuple[str, ...]:
        return tuple(change for step in self.steps for change in step.changes)

    def as_json(self) -> dict[str, Any]:
        return {
            "phone": self.phone.name,
            "port": self.phone.where,
            "serial": self.serial,
            "device": self.told,
            "status": self.status.value,
            "mac": self.mac,
            "host_key": self.host_key,
            "fingerprint": HostKey(*self.host_key.split()).fingerprint if self.host_key else None,
            "warnings": list(self.warnings),
            "steps": [step.as_json() for step in self.steps],
            **(
                {"adb": [["adb", "-s", self.name, *each.adb] for each in self.actions if each.adb]}
                if self.actions
                else {}
            ),
        }


@dataclass(frozen=True)
class Report:
    phones: tuple[PhoneReport, ...]
    to_come: tuple[Phone, ...]  # phones of the inventory that were never bootstrapped
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def failed(self) -> tuple[PhoneReport, ...]:
        return tuple(each for each in self.phones if each.failure)

    @property
    def ok(self) -> bool:
        return all(each.status not in {StepStatus.FAILED, StepStatus.UNFINISHED} for each in self.phones)

    def of(self, status: StepStatus) -> tuple[PhoneReport, ...]:
        return tuple(each for each in self.phones if each.status is status)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "dry_run": self.dry_run,
            "notes": list(self.notes),
            "phones": [each.as_json() for each in self.phones],
            "to_come": [phone.name for phone in self.to_come],
        }
