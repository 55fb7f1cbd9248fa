"""Why a run failed, put where the host reads: errors that other ranks told in mpirun's log join events.jsonl.

Rank 0 writes events.jsonl, but a rank that fails ends all others, rank 0 included, before anyone can pass it on.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import read_tail

MARK = '{"event": "error"'
YIELD_MARK = '{"event": "yield"'
LAST_LINES = 8


def collect(directory: Path, rc: int) -> None:
    lines = read_tail(directory / layout.MPIRUN_LOG)
    known = errors_in(read_tail(directory / layout.EVENTS_FILE))
    told = [error for error in errors_in(lines) if error not in known]
    for error in told:
        _append(directory, error)
    if not told and not known:
        said = "\n".join(line for line in lines if line.strip("- "))
        last = "\n".join(said.splitlines()[-LAST_LINES:])
        code = ErrorCode.KILLED if rc < 0 else ErrorCode.COMMAND_FAILED
        tell(directory, f"mpirun ended with {describe(rc)} and no rank said why. Its last words:\n{last}", code)


def tell(directory: Path, message: str, code: ErrorCode) -> None:
    event = {"event": "error", "time": time.time(), "rank": None, "phone": None, "message": message, "code": code}
    _append(directory, event)


def errors_in(lines: list[str]) -> list[dict[str, Any]]:
    """Error events, also where mpirun put a tag before them."""
    found = []
    for line in lines:
        _, mark, rest = line.partition(MARK)
        try:
            found.append(json.loads(mark + rest))
        except ValueError:
            continue
    return found


def yielded(directory: Path) -> bool:
    """Whether the last that was said is that the attempt ended for another to follow."""
    last = [line for line in read_tail(directory / layout.EVENTS_FILE, size=4096) if line][-1:]
    return any(line.startswith(YIELD_MARK) for line in last)


def describe(rc: int) -> str:
    return f"signal {-rc}" if rc < 0 else f"code {rc}"


def _append(directory: Path, event: dict[str, Any]) -> None:
    with (directory / layout.EVENTS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")
