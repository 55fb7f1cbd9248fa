"""A script on a phone: in one session, bounded, what arrived counts even if the rest never comes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from orchestrator.fleet.sanitize import last_lines
from orchestrator.health.doctor_facts import MAX_LINES, Facts, parse_facts

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from orchestrator.fleet.result import CommandResult

SCRIPT_LIMIT_S: Final = 30.0  # the script ends after 25 s by itself, unless the phone is slow
# Where bash is when a session's PATH does not say: sshd that was started without Termux's environment.
TERMUX_BASH: Final = "/data/data/com.termux/files/usr/bin/bash"
NOT_FOUND: Final = 127


def text_of(name: str) -> str:
    return files("orchestrator.health").joinpath(name).read_text(encoding="utf-8")


SESSION: Final = text_of("session.sh")
PROCESSES: Final = text_of("processes.sh")
EXAMINE: Final = SESSION + PROCESSES + text_of("examine.sh")


@dataclass(frozen=True)
class Answer:
    stdout: str
    stderr: str
    rc: int | None  # None: it was not done in time


def examine(connection: PhoneConnection, *neighbour: str) -> Facts:
    """`neighbour`: address and port of a phone that this one should reach."""
    asked = time.time()
    answer, shell_error = _run(connection, EXAMINE, *neighbour), ""
    if answer.rc == NOT_FOUND and not answer.stdout:
        shell_error = last_lines(answer.stderr, 1) or "bash: command not found"
        answer = _run(connection, EXAMINE, *neighbour, bash=TERMUX_BASH)
    return parse_facts(answer.stdout, (asked, time.time()), shell_error)


def script_anyhow(connection: PhoneConnection, text: str, *args: str, timeout: float) -> tuple[CommandResult, str]:
    """Like `PhoneConnection.script`, also where PATH leads nowhere; then with what the phone said about that."""
    result = connection.script(text, *args, timeout=timeout)
    if result.rc != NOT_FOUND or result.stdout:
        return result, ""
    body = "{\n" + text + "\n} </dev/null\n"
    again = connection.run([TERMUX_BASH, "-s", "--", *args], stdin=body.encode(), timeout=timeout)
    return again, last_lines(result.stderr, 1) or "bash: command not found"


def _run(connection: PhoneConnection, text: str, *args: str, bash: str = "bash") -> Answer:
    lines: list[bytes] = []
    with connection.open_stream([bash, "-c", text, "doctor", *args], silence=SCRIPT_LIMIT_S) as stream:
        abort = threading.Timer(SCRIPT_LIMIT_S, stream.close)
        abort.daemon = True
        abort.start()
        try:
            for line in stream:
                lines.append(line)
                if len(lines) > MAX_LINES:
                    break
        finally:
            abort.cancel()
    return Answer(b"\n".join(lines).decode("utf-8", "replace"), stream.stderr, stream.rc)
