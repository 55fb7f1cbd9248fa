"""Ends all processes of a run on this phone, whether or not it is the head phone. Its in-memory checkpoint stays unless
it is to be discarded."""

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

GRACE_S = 1.0  # between SIGTERM and SIGKILL
KILL_TIMEOUT_S = 5.0


def cleanup(run_id: str, *, discard_state: bool = False, holder: str | None = None) -> dict[str, Any]:
    """Idempotent. Does nothing on a phone without files of the run."""
    run = layout.local(layout.run_dir(run_id))
    if not run_directory.RUN_ID.fullmatch(run_id) or not run.is_dir():
        return {"processes_ended": 0, "held_steps": [], "attempt": None}
    lease.require(run, holder)
    held_steps = client.held_steps(run)
    processes_ended = _end_processes(run_id)
    if discard_state:
        client.stop_server(run)
    _wait_for_final_state(run)
    return {
        "processes_ended": processes_ended,
        "held_steps": [] if discard_state else held_steps,
        "attempt": run_directory.number(run_directory.newest(run)),
        "memory_mb": memory.available_mb(),
        "disk_mb": memory.free_disk_mb(run),
    }


def _end_processes(run_id: str) -> int:
    """How many there were. SIGTERM first, so that mpirun can clean up."""
    found = run_processes(run_id)
    _signal(found, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while (left := run_processes(run_id)) and time.monotonic() < deadline + KILL_TIMEOUT_S:
        if time.monotonic() > deadline:
            _signal(left, signal.SIGKILL)
        time.sleep(0.02)
    return len(found)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait_for_final_state(run: Path) -> None:
    """Wait until the process that supervises mpirun has recorded how it ended, so that the next command sees it."""
    deadline = time.monotonic() + GRACE_S
    for attempt in run_directory.attempts(run):
        while (state := run_state.read(attempt)) and not state.is_final and time.monotonic() < deadline:
            time.sleep(0.02)
