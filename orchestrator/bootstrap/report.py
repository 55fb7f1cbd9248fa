"""Results of a bootstrap, per phone and for all phones, and its events for the progress display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from orchestrator.bootstrap.steps.step import Action
from orchestrator.fleet.host_keys import HostKey
from orchestrator.inventory.model import Phone
from orchestrator.provision import engine
from orchestrator.provision.engine import StepReport, StepResult, StepSummary

LAST_STEP: Final = "record"


@dataclass(frozen=True)
class PhoneBootstrapReport(StepSummary):
    last_step: ClassVar[str] = LAST_STEP

    phone: Phone
    adb_name: str
    serial: str
    device: str = ""  # model and Android version
    steps: tuple[StepResult, ...] = ()
    actions: tuple[Action, ...] = ()  # of a dry run; those without adb arguments happen on this computer
    warnings: tuple[str, ...] = ()
    mac: str | None = None
    host_key: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "phone": self.phone.name,
            "port": self.phone.where,
            "serial": self.serial,
            "device": self.device,
            "status": self.status.value,
            "mac": self.mac,
            "host_key": self.host_key,
            "fingerprint": HostKey(*self.host_key.split()).fingerprint if self.host_key else None,
            "warnings": list(self.warnings),
            "steps": [step.as_json() for step in self.steps],
            **(
                {"adb": [["adb", "-s", self.adb_name, *each.adb] for each in self.actions if each.adb]}
                if self.actions
                else {}
            ),
        }


@dataclass(frozen=True)
class BootstrapReport(StepReport[PhoneBootstrapReport]):
    phones: tuple[PhoneBootstrapReport, ...]
    remaining: tuple[Phone, ...]  # phones of the inventory that were never bootstrapped
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "dry_run": self.dry_run,
            "notes": list(self.notes),
            "phones": [each.as_json() for each in self.phones],
            "remaining": [phone.name for phone in self.remaining],
        }


@dataclass(frozen=True)
class Waiting:
    """The phone cannot continue before this has happened; often a person has to do it."""

    phone: Phone
    reason: str


Event = engine.Event | Waiting
OnEvent = Callable[[Event], None]
