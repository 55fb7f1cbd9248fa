"""Call commands of the phone agent over SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import command_error, exit_error_code
from phone_agent.contract import layout
from phone_agent.contract.decode import DecodeError, decode_json
from phone_agent.contract.errors import ErrorCode, read_error_line
from phone_agent.contract.text import last_lines, lines

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from orchestrator.inventory.model import Phone

T = TypeVar("T")

ENVIRONMENT = {"PYTHONPATH": str(layout.CURRENT)}
MAX_ROWS = 20_000  # of a streaming command


def argv(*command: str) -> list[str]:
    return ["python3", "-m", "phone_agent", *command]


def call(connection: PhoneConnection, reply: type[T], *command: str, timeout: float = 60.0) -> T:
    """The decoded reply. Raises PhoneError with the agent's error code and message, or BAD_ANSWER."""
    result = connection.run(argv(*command), env=ENVIRONMENT, timeout=timeout)
    if not result.ok:
        reported = read_error_line(result.stderr)
        if reported is None:
            raise command_error(result)
        raise PhoneError(reported[1], code=reported[0])
    try:
        return decode_json(reply, result.stdout)
    except DecodeError as error:
        raise bad_answer(connection.phone, command[0], error) from None


def stream_rows(
    connection: PhoneConnection,
    parse: Callable[[bytes], T],
    *command: str,
    silence: float,
    timeout: float,
    env: Mapping[str, str] = ENVIRONMENT,
) -> Iterator[T]:
    """The rows that an agent command prints, one per line, as they arrive. Raises PhoneError.

    `parse` raises DecodeError.
    """
    remedy = f"clusterctl provision --limit {connection.phone.name}"
    with connection.open_stream(argv(*command), env=env, silence=silence, timeout=timeout) as stream:
        for number, line in enumerate(stream):
            if number >= MAX_ROWS:
                message = f"phone_agent {command[0]} printed more than {MAX_ROWS} rows"
                raise PhoneError(message, code=ErrorCode.TOO_MUCH_OUTPUT, remedy=remedy)
            try:
                yield parse(line)
            except DecodeError as error:
                raise bad_answer(connection.phone, command[0], error) from None
    if stream.rc:
        code, message = reported(stream.stderr, stream.rc)
        raise PhoneError(f"phone_agent {command[0]} failed: {message[-300:]}", code=code, remedy=remedy)


def bad_answer(phone: Phone, command: str, error: DecodeError) -> PhoneError:
    """Names the phone, the command and the field."""
    message = f"invalid reply of {phone.name} to {command}: {error}"
    return PhoneError(message, code=ErrorCode.BAD_ANSWER, remedy=f"clusterctl provision --limit {phone.name}")


def reported(stderr: str, rc: int | None) -> tuple[ErrorCode, str]:
    """Error code and message of a streamed agent command that failed."""
    if (found := read_error_line(stderr)) is not None:
        return found[0], lines(found[1])
    return exit_error_code(rc, stderr), last_lines(stderr, 1) or f"exit code {rc}"
