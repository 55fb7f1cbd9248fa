"""Ctrl-C while a run is shown: ask whether to stop it, and confirm what was done."""

from __future__ import annotations

import sys
from enum import Enum

from orchestrator.records.record import RunRecord
from orchestrator.view.console import err, next_step


class StopOrDetach(Enum):
    STOP = "stop"
    DETACH = "detach"
    NO_ANSWER = "no answer"


def ask_stop_or_detach() -> StopOrDetach:
    """Asks once. Without a terminal, or on another Ctrl-C, the run is left alone."""
    if not (sys.stdin.isatty() and err.is_terminal):
        return StopOrDetach.NO_ANSWER
    try:
        answer = err.input("\n[bold]Stop the run, or detach and let it continue?[/] \\[s/[bold]D[/]] ")
    except (EOFError, KeyboardInterrupt):
        err.print()
        return StopOrDetach.NO_ANSWER
    return StopOrDetach.STOP if answer.strip().lower() in {"s", "stop"} else StopOrDetach.DETACH


def print_stopped(record: RunRecord) -> None:
    err.print(f"{record.run_id}: {record.state} at step {record.step} of {record.steps}.", markup=False)
    next_step(f"clusterctl collect-logs {record.run_id}")


def print_detached(run_id: str) -> None:
    err.print(f"Detached. {run_id} continues; its supervisor restarts it when a phone fails.", markup=False)
    next_step(f"clusterctl attach {run_id}", "watch it")
    next_step(f"clusterctl stop {run_id}", "stop it")
