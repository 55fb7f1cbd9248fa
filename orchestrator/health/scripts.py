"""Scripts on phones: run in one session, limited in time; partial output is used if a script does not finish."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.fleet.result import CommandResult
from orchestrator.health.doctor_facts import DoctorFacts, parse_doctor_facts
from orchestrator.health.session_facts import MAX_LINES
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines

MAX_LINE_BYTES: Final = 1 << 16
SCRIPT_LIMIT_S: Final = 30.0  # the script itself ends after 25 s, unless the phone is slow
# The path of bash for sessions whose PATH lacks it, because sshd was started without Termux's environment.
TERMUX_BASH: Final = "/data/data/com.termux/files/usr/bin/bash"
_RC_NOT_FOUND: Final = 127


def read_health_script(name: str) -> str:
    return files("orchestrator.health").joinpath(name).read_text(encoding="utf-8")


SESSION: Final = read_health_script("session.sh")
PROCESSES: Final = read_health_script("processes.sh")
EXAMINE: Final = SESSION + PROCESSES + read_health_script("examine.sh")


@dataclass(frozen=True)
class ScriptOutput:
    stdout: str
    stderr: str
    rc: int | None  # None: it did not finish in time


def collect_doctor_facts(connection: PhoneConnection, *neighbor: str) -> DoctorFacts:
    """`neighbor`: address and port of a phone that this one should log in to."""
    sent = time.time()
    output, shell_error = _run(connection, EXAMINE, *neighbor), ""
    if output.rc == _RC_NOT_FOUND and not output.stdout:
        shell_error = last_lines(output.stderr, 1) or "bash: command not found"
        output = _run(connection, EXAMINE, *neighbor, bash=TERMUX_BASH)
    return parse_doctor_facts(output.stdout, (sent, time.time()), shell_error)


def run_script_with_fallback(
    connection: PhoneConnection, text: str, *args: str, timeout: float
) -> tuple[CommandResult, str]:
    """Like `PhoneConnection.script`, but falls back to Termux's bash if PATH has none; then also returns the error."""
    result = connection.script(text, *args, timeout=timeout)
    if result.rc != _RC_NOT_FOUND or result.stdout:
        return result, ""
    body = "{\n" + text + "\n} </dev/null\n"
    again = connection.run([TERMUX_BASH, "-s", "--", *args], stdin=body.encode(), timeout=timeout)
    return again, last_lines(result.stderr, 1) or "bash: command not found"


def _run(connection: PhoneConnection, text: str, *args: str, bash: str = "bash") -> ScriptOutput:
    lines: list[bytes] = []
    command, limit = [bash, "-c", text, "doctor", *args], SCRIPT_LIMIT_S
    with connection.open_stream(command, silence=limit, timeout=limit) as stream:
        try:
            lines.extend(line[:MAX_LINE_BYTES] for line in islice(stream, MAX_LINES))
        except PhoneError as error:
            if error.code is not ErrorCode.TIMED_OUT:
                raise
    return ScriptOutput(b"\n".join(lines).decode("utf-8", "replace"), stream.stderr, stream.rc)
