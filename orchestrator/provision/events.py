"""Events of a provision, for the progress display. `bootstrap` emits them too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.inventory.model import Phone
from orchestrator.provision.engine import StepResult


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
