"""Call commands of the phone agent over SSH."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import command_error, exit_error_code
from orchestrator.fleet.sanitize import last_lines, printable
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode, read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

ENVIRONMENT = {"PYTHONPATH": str(layout.CURRENT)}
MAX_ROWS = 20_000  # of a streaming command


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


def stream_rows(
    connection: PhoneConnection, *command: str, silence: float, env: Mapping[str, str] = ENVIRONMENT
) -> Iterator[Any]:
    """The JSON values that an agent command prints, one per line, as they arrive; None for a line that is not JSON.

    Phones are untrusted: callers validate the values. Raises PhoneError if the command fails or prints too much.
    """
    remedy = f"clusterctl provision --limit {connection.phone.name}"
    with connection.open_stream(argv(*command), env=env, silence=silence) as stream:
        for number, line in enumerate(stream):
            if number >= MAX_ROWS:
                message = f"phone_agent {command[0]} printed more than {MAX_ROWS} rows"
                raise PhoneError(message, code=ErrorCode.TOO_MUCH_OUTPUT, remedy=remedy)
            yield parse_row(line)
    if stream.rc:
        code, message = reported(stream.stderr, stream.rc)
        raise PhoneError(f"phone_agent {command[0]} failed: {message[-300:]}", code=code, remedy=remedy)


def parse_row(line: bytes | str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def reported(stderr: str, rc: int | None) -> tuple[ErrorCode, str]:
    """Error code and message of a streamed agent command that failed."""
    if (found := read_error_line(stderr)) is not None:
        return found[0], printable(found[1])
    return exit_error_code(rc, stderr), last_lines(stderr, 1) or f"exit code {rc}"
