"""The supervisor process of a cluster, in one line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.records.record import RunRecord
from orchestrator.supervisor.status import SupervisorStatus
from orchestrator.text import count_of
from orchestrator.view.console import next_step

SILENT_S = 60.0  # it writes its status every 5 s


def print_supervisor(console: Console, status: SupervisorStatus | None, unfinished: Sequence[RunRecord]) -> None:
    """Nothing if no run needs a supervisor."""
    if status is not None and (status.runs or unfinished):
        console.print(Text(format_supervisor(status), "dim"), soft_wrap=True)
    elif unfinished:
        count = count_of(unfinished, "unfinished run")
        console.print(Text(f"no supervisor for {count}: nobody restarts it when a phone fails", "yellow"))
        next_step(f"clusterctl attach {unfinished[-1].run_id}", "start the supervisor")


def format_supervisor(status: SupervisorStatus) -> str:
    if status.heartbeat and (silent_s := time.time() - status.heartbeat) > SILENT_S:
        silent = format_clock(silent_s)
        return (
            f"supervisor: process {status.pid} has not written its status for {silent}: "
            f"the disk of this computer is full, or the process hangs; to end it: kill {status.pid}"
        )
    since = f" since {time.strftime('%H:%M', time.localtime(status.started))}" if status.started else ""
    return f"supervisor: process {status.pid}{since}, {', '.join(status.runs) or 'starting'}"


def supervisor_json(status: SupervisorStatus | None) -> dict[str, Any] | None:
    return None if status is None else asdict(status)
