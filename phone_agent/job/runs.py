"""The runs on this phone, whether or not it is their head phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.files import read_tail
from phone_agent.device.process import ProcessId
from phone_agent.job import run_directory
from phone_agent.job import state as run_state
from phone_agent.job.state import DONE, FAILED, LOST, RUNNING, STOPPED, YIELDED

STAGED = "staged"
_ENDS = {"done": DONE, "error": FAILED, "yield": YIELDED, "stop": STOPPED}  # by the last event of a rank
Event = dict[str, Any]


def all_runs() -> list[dict[str, Any]]:
    """Oldest first."""
    runs = [run for run in layout.local(layout.RUNS).glob("*") if run_directory.attempts(run)]
    return [summary(run) for run in sorted(runs, key=_staged_at)]


def latest() -> dict[str, Any] | None:
    runs = all_runs()
    return runs[-1] if runs else None


def summary(run: Path) -> dict[str, Any]:
    """Of the newest attempt. The head phone knows the state of the run, others only that of their own rank."""
    directory = run_directory.newest(run)
    state = run_state.read(directory)
    events = _events(directory)
    step = next((event["step"] for event in reversed(events) if "step" in event), None)
    return {
        "id": run.name,
        "attempt": run_directory.number(directory),
        "state": state.state if state else _rank_state(directory, events),
        "step": step,
        "head": state is not None,
    }


def _rank_state(directory: Path, events: list[Event]) -> str:
    last = events[-1]["event"] if events else None
    if last in _ENDS:
        return _ENDS[last]
    if not events:
        return STAGED
    return RUNNING if _rank_lives(directory) else LOST


def _rank_lives(directory: Path) -> bool:
    rank = rank_process(directory)
    return rank is not None and rank.alive()


def rank_process(directory: Path) -> ProcessId | None:
    """The process of an attempt's rank, from its start event."""
    try:
        with (directory / layout.RANK_EVENTS_FILE).open(encoding="utf-8") as file:
            start = json.loads(file.readline())
        return ProcessId(int(start["pid"]), start["pid_started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _events(directory: Path) -> list[Event]:
    """The last few events of this rank. The first line may be cut off, the last one incomplete."""
    events = []
    for line in read_tail(directory / layout.RANK_EVENTS_FILE, size=4096):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def _staged_at(run: Path) -> float:
    try:
        return (run_directory.newest(run) / layout.RUN_FILE).stat().st_mtime
    except OSError:
        return 0.0
