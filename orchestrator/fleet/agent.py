"""The agent's verbs, called over SSH."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.quote import last_lines, printable
from orchestrator.fleet.result import ending, failed
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode, read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

ENVIRONMENT = {"PYTHONPATH": str(layout.CURRENT)}


def argv(*verb: str) -> list[str]:
    return ["python3", "-m", "phone_agent", *verb]


def call(connection: PhoneConnection, *verb: str, timeout: float = 60.0) -> Any:
    """The verb's answer. Raises PhoneError with the agent's error code and message."""
    result = connection.run(argv(*verb), env=ENVIRONMENT, timeout=timeout)
    if not result.ok:
        reported = read_error_line(result.stderr)
        if reported is None:
            raise failed(result)
        raise PhoneError(printable(f"phone_agent {verb[0]}: {reported[1]}"), code=reported[0])
    try:
        return json.loads(result.stdout)
    except (ValueError, RecursionError):
        message = f"phone_agent {verb[0]} did not answer with JSON"
        raise PhoneError(message, code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision") from None


def reported(stderr: str, rc: int | None) -> tuple[ErrorCode, str]:
    """Why a verb whose output was streamed failed: its error code and message, or what else is known."""
    if (found := read_error_line(stderr)) is not None:
        return found[0], printable(found[1])
    return ending(rc), last_lines(stderr, 1) or f"exit code {rc}"
