"""State of a run on this phone. The host asks for it when the run stops reporting."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.device import memory, process
from phone_agent.job import run_directory
from phone_agent.job import state as run_state
from phone_agent.job.runs import rank_process
from phone_agent.job.startup_log import read_phase
from phone_agent.memckpt import client

OBSERVE_S = 0.5  # to see whether a rank makes progress
LOGCAT = ("/system/bin/logcat", "-d", "-t", "500")
KILLERS = {"Trimming phantom": "Android's phantom process killer", "lowmemorykiller": "Android, because memory was low"}


def probe(run_id: str, *, logcat: bool = False) -> dict[str, Any]:
    """`logcat`: also search Android's log for who killed the rank, which takes longer."""
    run = run_directory.find(run_id)
    attempt = run_directory.newest(run)
    state = run_state.read(attempt)
    phase = read_phase(attempt)
    return {
        "attempt": run_directory.number(attempt),
        "ranks": _ranks(run_id),
        "phase": phase and phase[0],
        "phase_expected_s": phase[1] if phase else 0.0,
        "state": state.state if state else None,
        "held_steps": client.held_steps(run),
        "memory_mb": memory.available_mb(),
        "disk_mb": memory.free_disk_mb(Path.home()),
        "killed_by": find_killer(attempt) if logcat else None,
    }


def _ranks(run_id: str) -> list[dict[str, Any]]:
    """Observed for a moment: a rank that is stopped, or waits for a disk, uses no CPU time."""
    pids = process.rank_processes(run_id)
    before = {pid: process.process_activity(pid) for pid in pids}
    time.sleep(OBSERVE_S if pids else 0.0)
    return [
        {"pid": pid, "state": now.state, "cpu_s": now.cpu_s, "progressing": now.cpu_s > then.cpu_s}
        for pid, then in before.items()
        if then and (now := process.process_activity(pid))
    ]


def find_killer(attempt: Path) -> str | None:
    """Who killed the attempt's rank, according to Android's log. Lines about other processes do not count."""
    rank = rank_process(attempt)
    if rank is None:
        return None
    try:
        output = subprocess.run(LOGCAT, capture_output=True, text=True, errors="replace", timeout=3, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    about_rank = [line for line in output.splitlines() if re.search(rf"\b{rank.pid}\b", line)]
    return next((who for line in reversed(about_rank) for mark, who in KILLERS.items() if mark in line), None)


def request_yield(run_id: str, attempt: int) -> bool:
    """Ask the attempt to end after a step. False if it has already ended."""
    directory = run_directory.find(run_id, attempt)
    state = run_state.read(directory)
    if state is None or state.is_final:
        return False
    (directory / layout.YIELD_FILE).touch()
    return True
