"""Ends a run. On the head phone, `request_stop` lets it write a checkpoint and `stop` ends mpirun; on any phone,
`cleanup` ends process by process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.device import memory
from phone_agent.device.process import run_processes, session_members
from phone_agent.job import lease, run_directory
from phone_agent.job import state as run_state
from phone_agent.job.state import LOST, STOPPED, RunState
from phone_agent.memckpt import client

GRACE_S = 10.0
CLEANUP_GRACE_S = 1.0  # between SIGTERM and SIGKILL
KILL_TIMEOUT_S = 5.0


def request_stop(run_id: str, attempt: int, holder: str | None = None) -> bool:
    """Ask the attempt to write a checkpoint after the current step and to end. False if it has already ended."""
    directory = run_directory.find(run_id, attempt)
    lease.require(run_directory.run_of(directory), holder)
    state = run_state.read(directory)
    if state is None or state.is_final:
        return False
    (directory / layout.STOP_FILE).touch()
    return True


def stop(run_id: str, grace_s: float = GRACE_S, holder: str | None = None) -> dict[str, Any]:
    """Whether there was anything to stop, and the final state. The in-memory checkpoint stays."""
    run = run_directory.find(run_id)
    lease.require(run, holder)
    directory = run_directory.newest(run)
    state = run_state.read(directory)
    if state is None or (state.is_final and state.state != LOST):
        return {"stopped": False, "state": state.state if state else None}
    (directory / layout.STOP_FILE).touch()
    _end_mpirun(state, directory, grace_s)
    return {"stopped": True, "state": _final_state(directory)}


def _end_mpirun(state: RunState, directory: Path, grace_s: float) -> None:
    if state.process is None or not state.process.alive():
        return
    leader = state.process.pid
    _signal([leader], signal.SIGTERM)
    if not _wait(lambda: not session_members(leader), grace_s):
        _wait(lambda: not _signal(session_members(leader), signal.SIGKILL), grace_s)  # repeated: they may fork
    _wait(lambda: _is_final(directory), grace_s)


def _final_state(directory: Path) -> str:
    """If the parent process of mpirun died, record the end in its place."""
    state = run_state.read(directory)
    if state is None:
        return STOPPED
    if state.state == LOST:
        state = replace(state, state=STOPPED, ended=time.time())
        state.write(directory)
    return state.state


def _is_final(directory: Path) -> bool:
    state = run_state.read(directory)
    return state is None or state.is_final


def _signal(pids: list[int], number: signal.Signals) -> list[int]:
    """The processes, for `_wait`."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return pids


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def cleanup(run_id: str, *, discard_state: bool = False, holder: str | None = None) -> dict[str, Any]:
    """Idempotent. Does nothing on a phone without files of the run. Its in-memory checkpoint stays unless discarded."""
    run = layout.local(layout.run_dir(run_id))
    if not run_directory.RUN_ID.fullmatch(run_id) or not run.is_dir():
        return {"processes_ended": 0, "held_steps": [], "checkpoint_step": 0, "attempt": None}
    lease.require(run, holder)
    processes_ended = _end_processes(run_id)
    if discard_state:
        client.stop_server(run)
    _wait_for_final_state(run)
    return {
        "processes_ended": processes_ended,
        "held_steps": client.held_steps(run),  # once no rank can commit a step any more
        "checkpoint_step": max(map(layout.checkpoint_step, run.glob(layout.CHECKPOINTS)), default=0),
        "attempt": run_directory.number(run_directory.newest(run)),
        "memory_mb": memory.available_mb(),
        "disk_mb": memory.free_disk_mb(run),
    }


def _end_processes(run_id: str) -> int:
    """How many there were. SIGTERM first, so that mpirun can clean up."""
    found = run_processes(run_id)
    _signal(found, signal.SIGTERM)
    deadline = time.monotonic() + CLEANUP_GRACE_S
    while (left := run_processes(run_id)) and time.monotonic() < deadline + KILL_TIMEOUT_S:
        if time.monotonic() > deadline:
            _signal(left, signal.SIGKILL)
        time.sleep(0.02)
    return len(found)


def _wait_for_final_state(run: Path) -> None:
    """Wait until the parent process of mpirun has recorded how it ended, so that the next command sees it."""
    deadline = time.monotonic() + CLEANUP_GRACE_S
    for attempt in run_directory.attempts(run):
        while (state := run_state.read(attempt)) and not state.is_final and time.monotonic() < deadline:
            time.sleep(0.02)
