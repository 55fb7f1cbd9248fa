"""The runs on this phone, head or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phone_agent import layout
from phone_agent.files import read_tail
from phone_agent.process import ProcessId
from phone_agent.supervise import state as run_state
from phone_agent.supervise.state import DONE, FAILED, LOST, RUNNING

STAGED = "staged"
Event = dict[str, Any]


def all_runs() -> list[dict[str, Any]]:
    """Oldest first."""
    staged = [(_staged_at(path), path.parent) for path in layout.local(layout.RUNS).glob(f"*/{layout.RUN_FILE}")]
    return [summary(directory) for _, directory in sorted(staged)]


def latest() -> dict[str, Any] | None:
    runs = all_runs()
    return runs[-1] if runs else None


def summary(directory: Path) -> dict[str, Any]:
    """The head phone knows the run's state, the others only their own rank's."""
    state = run_state.read(directory)
    events = _events(directory)
    step = next((event["step"] for event in reversed(events) if "step" in event), None)
    return {
        "id": directory.name,
        "state": state.state if state else _rank_state(directory, events),
        "step": step,
        "head": state is not None,
    }


def _rank_state(directory: Path, events: list[Event]) -> str:
    last = events[-1]["event"] if events else None
    if last in {"done", "error"}:
        return DONE if last == "done" else FAILED
    if not events:
        return STAGED
    return RUNNING if _rank_lives(directory) else LOST


def _rank_lives(directory: Path) -> bool:
    try:
        with (directory / layout.RANK_EVENTS_FILE).open(encoding="utf-8") as file:
            start = json.loads(file.readline())
        return ProcessId(start["pid"], start["pid_started"]).alive()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _events(directory: Path) -> list[Event]:
    """The last few of this rank; a line may be cut off at the front, or still being written."""
    events = []
    for line in read_tail(directory / layout.RANK_EVENTS_FILE, size=4096):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def _staged_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
