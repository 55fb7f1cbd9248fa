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
    folder = layout.local(layout.RUNS)
    staged = [path.parent for path in folder.glob(f"*/{layout.RUN_FILE}")] if folder.is_dir() else []
    return [summary(directory) for directory in sorted(staged, key=_staged_at)]


def latest() -> dict[str, Any] | None:
    runs = all_runs()
    return runs[-1] if runs else None


def summary(directory: Path) -> dict[str, Any]:
    """The head phone knows the run's state, the others only their own rank's."""
    state = run_state.read(directory)
    events = _events(directory)
    step = next((event["step"] for event in reversed(events) if event["event"] == "step"), None)
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
    with (directory / layout.RANK_EVENTS_FILE).open(encoding="utf-8") as file:
        start = json.loads(file.readline())
    return "pid" in start and ProcessId(start["pid"], start["pid_started"]).alive()


def _events(directory: Path) -> list[Event]:
    """The last few of this rank."""
    events = []
    for line in read_tail(directory / layout.RANK_EVENTS_FILE, size=4096):
        try:
            events.append(json.loads(line))
        except ValueError:  # cut off at the front, or still being written
            continue
    return events


def _staged_at(directory: Path) -> float:
    return (directory / layout.RUN_FILE).stat().st_mtime
