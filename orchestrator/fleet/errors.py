"""Connection errors."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Outcomes
from phone_agent.contract.errors import ErrorCode


class Unreachable(PhoneError):  # noqa: N818  (describes the state of the phone)
    """The phone did not answer, stopped answering, or rejected the login. The state of its work is unknown."""

    def __init__(
        self, message: str, *, code: ErrorCode, phase: str, remedy: str | None = None, retries: int = 0
    ) -> None:
        super().__init__(message, code=code, phase=phase, remedy=remedy)
        self.retries = retries  # how often to retry


class FleetInterrupted(KeyboardInterrupt):
    """Ctrl-C during `Fleet.map`; `outcomes` has the results so far, the others are CANCELLED."""

    def __init__(self, outcomes: Outcomes[Any]) -> None:
        super().__init__()
        self.outcomes = outcomes
