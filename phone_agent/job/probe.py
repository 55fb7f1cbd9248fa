"""How this phone's part of a run is doing: asked when nothing is heard of the run."""

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
from phone_agent.memckpt import client

WATCHED_S = 0.5
LOGCAT = ("/system/bin/logcat", "-d", "-t", "500")
KILLERS = {"Trimming phantom": "Android's phantom process killer", "lowmemorykiller": "Android, for want of memory"}


def probe(run_id: str, *, logcat: bool = False) -> dict[str, Any]:
    """`logcat`: also what Android says of processes it killed, which takes longer."""
    run = run_directory.find(run_id)
    attempt = run_directory.newest(run)
    state = run_state.read(attempt)
    return {
        "attempt": run_directory.number(attempt),
        "ranks": _ranks(run_id),
        "state": state.state if state else None,
        "held_steps": client.held_steps(run),
        "memory_mb": memory.available_mb(),
        "disk_mb": memory.free_disk_mb(Path.home()),
        "killed_by": _killer(attempt) if logcat else None,
    }


def _ranks(run_id: str) -> list[dict[str, Any]]:
    """Watched for a moment: one that is stopped, or waits for a disk, gets nowhere."""
    pids = process.rank_processes(run_id)
    before = {pid: process.process_activity(pid) for pid in pids}
    time.sleep(WATCHED_S if pids else 0.0)
    return [
        {"pid": pid, "state": now.state, "cpu_s": now.cpu_s, "progressing": now.cpu_s > then.cpu_s}
        for pid, then in before.items()
        if then and (now := process.process_activity(pid))
    ]


def _killer(attempt: Path) -> str | None:
    """Who killed the attempt's rank, by Android's log. Lines about other processes, or of another day, do not count."""
    rank = rank_process(attempt)
    if rank is None:
        return None
    try:
        said = subprocess.run(LOGCAT, capture_output=True, text=True, errors="replace", timeout=3, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    about_it = [line for line in said.splitlines() if re.search(rf"\b{rank.pid}\b", line)]
    return next((who for line in reversed(about_it) for mark, who in KILLERS.items() if mark in line), None)


def request_yield(run_id: str, attempt: int) -> bool:
    """The attempt ends at a step's end. False: it is over already."""
    directory = run_directory.find(run_id, attempt)
    state = run_state.read(directory)
    if state is None or state.is_final:
        return False
    (directory / layout.YIELD_FILE).touch()
    return True
