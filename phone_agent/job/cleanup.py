"""Ends whatever a run does on this phone, head or not; what it holds in memory stays, unless told otherwise."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.device import memory
from phone_agent.device.process import run_processes
from phone_agent.job import lease, run_directory
from phone_agent.job import state as run_state
from phone_agent.memckpt import client

GRACE_S = 1.0
PATIENCE_S = 5.0


def cleanup(run_id: str, *, discard_state: bool = False, holder: str | None = None) -> dict[str, Any]:
    """May be called again and again. A phone that has nothing of the run has nothing to end."""
    run = layout.local(layout.run_dir(run_id))
    if not run_directory.RUN_ID.fullmatch(run_id) or not run.is_dir():
        return {"processes_ended": 0, "held_steps": [], "attempt": None}
    lease.require(run, holder)
    held = client.held_steps(run)
    ended = _end(run_id)
    if discard_state:
        client.stop_server(run)
    _record(run)
    return {
        "processes_ended": ended,
        "held_steps": [] if discard_state else held,
        "attempt": run_directory.number(run_directory.newest(run)),
        "memory_mb": memory.available_mb(),
        "disk_mb": memory.free_disk_mb(run),
    }


def _end(run_id: str) -> int:
    """Asks first: mpirun then tidies up. How many there were."""
    there = run_processes(run_id)
    _signal(there, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while (left := run_processes(run_id)) and time.monotonic() < deadline + PATIENCE_S:
        if time.monotonic() > deadline:
            _signal(left, signal.SIGKILL)
        time.sleep(0.02)
    return len(there)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _record(run: Path) -> None:
    """A supervisor writes down how mpirun ended: it is waited for, so that whoever asks next is told."""
    deadline = time.monotonic() + GRACE_S
    for attempt in run_directory.attempts(run):
        while (state := run_state.read(attempt)) and not state.is_final and time.monotonic() < deadline:
            time.sleep(0.02)
