"""Events of a bootstrap, for the progress display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.inventory.model import Phone
from orchestrator.provision import events


@dataclass(frozen=True)
class Waiting:
    """The phone cannot continue before this has happened; often a person has to do it."""

    phone: Phone
    reason: str


Event = events.Event | Waiting
OnEvent = Callable[[Event], None]
