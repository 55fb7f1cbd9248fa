"""What can happen to a connection, on top of `orchestrator.errors.PhoneError`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Outcomes


class Cause(StrEnum):
    """Why a phone was not reached, for those who must tell one from another; the message is for people."""

    REFUSED = "refused"  # the phone answers, nothing listens
    NO_ANSWER = "no answer"
    NO_ROUTE = "no route"
    SILENT = "silent"  # connected, and nobody speaks
    HUNG_UP = "hung up"  # before the banner
    PENALTY = "penalty"  # sshd says that it refuses this computer for a while
    NOT_SSH = "not ssh"
    UNKNOWN_KEY = "unknown key"
    CHANGED_KEY = "changed key"
    CLONED_KEY = "cloned key"


class Unreachable(PhoneError):  # noqa: N818  (it reads as what the phone is)
    """The phone did not answer, stopped answering, or did not let us in. Nothing is known about its work."""

    def __init__(
        self, message: str, *, phase: str, remedy: str | None = None, retries: int = 0, cause: Cause | None = None
    ) -> None:
        super().__init__(message, phase=phase, remedy=remedy)
        self.cause = cause
        self.retries = retries  # how many more attempts this deserves


class FleetInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of a map; `outcomes` holds what arrived, the rest is CANCELLED."""

    def __init__(self, outcomes: Outcomes[Any]) -> None:
        super().__init__()
        self.outcomes = outcomes
