"""After a failed run, copies the errors of other ranks from mpirun's log to events.jsonl, where the host reads them.

Rank 0 writes events.jsonl, but a rank that fails ends all others, including rank 0, before they can report it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import read_tail

ERROR_PREFIX = '{"event": "error"'
LAST_LINES = 8


def collect(directory: Path, rc: int) -> None:
    lines = read_tail(directory / layout.MPIRUN_LOG)
    known = errors_in(read_tail(directory / layout.EVENTS_FILE))
    new = [error for error in errors_in(lines) if error not in known]
    for error in new:
        _append(directory, error)
    if not new and not known:
        output = "\n".join(line for line in lines if line.strip("- "))
        last = "\n".join(output.splitlines()[-LAST_LINES:])
        code = ErrorCode.KILLED if rc < 0 else ErrorCode.COMMAND_FAILED
        write_error(
            directory,
            f"mpirun failed with {describe(rc)}, and no rank reported an error. Its last output:\n{last}",
            code,
        )


def write_error(directory: Path, message: str, code: ErrorCode) -> None:
    event = {"event": "error", "time": time.time(), "rank": None, "phone": None, "message": message, "code": code}
    _append(directory, event)


def errors_in(lines: list[str]) -> list[dict[str, Any]]:
    """Error events, also in lines that mpirun prefixed with a tag."""
    found = []
    for line in lines:
        _, prefix, rest = line.partition(ERROR_PREFIX)
        try:
            found.append(json.loads(prefix + rest))
        except ValueError:
            continue
    return found


def last_event(directory: Path) -> str:
    """The name of the last event that rank 0 wrote; empty if it is unknown."""
    last = [line for line in read_tail(directory / layout.EVENTS_FILE, size=4096) if line][-1:]
    try:
        return str(json.loads(last[0])["event"])
    except (IndexError, ValueError, KeyError, TypeError):
        return ""


def describe(rc: int) -> str:
    return f"signal {-rc}" if rc < 0 else f"exit code {rc}"


def _append(directory: Path, event: dict[str, Any]) -> None:
    with (directory / layout.EVENTS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")
