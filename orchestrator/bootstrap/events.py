"""What happens during a bootstrap, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.inventory.model import Phone
from orchestrator.provision.report import StepResult


@dataclass(frozen=True)
class Started:
    """All who take part."""

    phones: tuple[Phone, ...]


@dataclass(frozen=True)
class Doing:
    phone: Phone
    what: str


@dataclass(frozen=True)
class Waiting:
    """Nothing goes on before this has happened; often somebody has to do it."""

    phone: Phone
    what: str


@dataclass(frozen=True)
class StepDone:
    phone: Phone
    result: StepResult


@dataclass(frozen=True)
class PhoneDone:
    phone: Phone


@dataclass(frozen=True)
class Note:
    message: str


Event = Started | Doing | Waiting | StepDone | PhoneDone | Note
OnEvent = Callable[[Event], None]
