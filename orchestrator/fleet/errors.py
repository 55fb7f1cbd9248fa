"""What can happen to a connection, on top of `orchestrator.errors.PhoneError`."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Outcomes
from phone_agent.contract.errors import ErrorCode


class Unreachable(PhoneError):  # noqa: N818  (it reads as what the phone is)
    """The phone did not answer, stopped answering, or did not let us in. Nothing is known about its work."""

    def __init__(
        self, message: str, *, code: ErrorCode, phase: str, remedy: str | None = None, retries: int = 0
    ) -> None:
        super().__init__(message, code=code, phase=phase, remedy=remedy)
        self.retries = retries  # how many more attempts this deserves


class FleetInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of a map; `outcomes` holds what arrived, the rest is CANCELLED."""

    def __init__(self, outcomes: Outcomes[Any]) -> None:
        super().__init__()
        self.outcomes = outcomes
