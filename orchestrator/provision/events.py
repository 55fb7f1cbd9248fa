"""What happens during a provision, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.inventory.model import Phone
from orchestrator.provision.report import StepResult


@dataclass(frozen=True)
class StageStarted:
    """A part of the work that several phones go through at once."""

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
    """Done with the stage, well or not."""

    phone: Phone


@dataclass(frozen=True)
class Note:
    message: str


Event = StageStarted | StepStarted | StepFinished | PhoneFinished | Note
OnEvent = Callable[[Event], None]
