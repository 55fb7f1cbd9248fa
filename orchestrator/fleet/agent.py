"""Call commands of the phone agent over SSH."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import command_error, exit_error_code
from orchestrator.fleet.sanitize import last_lines, printable
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode, read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

ENVIRONMENT = {"PYTHONPATH": str(layout.CURRENT)}


def argv(*command: str) -> list[str]:
    return ["python3", "-m", "phone_agent", *command]


def call(connection: PhoneConnection, *command: str, timeout: float = 60.0) -> Any:
    """The decoded JSON reply. Raises PhoneError with the agent's error code and message."""
    result = connection.run(argv(*command), env=ENVIRONMENT, timeout=timeout)
    if not result.ok:
        reported = read_error_line(result.stderr)
        if reported is None:
            raise command_error(result)
        raise PhoneError(printable(reported[1]), code=reported[0])
    try:
        return json.loads(result.stdout)
    except (ValueError, RecursionError):
        message = f"phone_agent {command[0]} did not answer with JSON"
        raise PhoneError(message, code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision") from None


def reported(stderr: str, rc: int | None) -> tuple[ErrorCode, str]:
    """Error code and message of a streamed agent command that failed."""
    if (found := read_error_line(stderr)) is not None:
        return found[0], printable(found[1])
    return exit_error_code(rc, stderr), last_lines(stderr, 1) or f"exit code {rc}"
