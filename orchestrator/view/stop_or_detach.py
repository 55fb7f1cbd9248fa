"""Ctrl-C while a run is shown: ask whether to stop it, and confirm what was done."""

from __future__ import annotations

import sys
from enum import Enum

from orchestrator.supervisor.stop import StoppedRun
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


def print_stopped(stopped: StoppedRun) -> None:
    record, checkpoint = stopped.record, stopped.checkpoint
    err.print(f"{record.run_id}: {record.state} at step {record.step} of {record.steps}.", markup=False)
    if checkpoint is None:
        err.print("No step is saved." if record.step else "No step was completed: there is nothing to save.")
    else:
        lost = f" Later steps, up to {record.step}, are lost." if record.step > checkpoint.step else ""
        err.print(f"Saved: step {checkpoint.step}, {checkpoint.path}.{lost}", markup=False, soft_wrap=True)
    if checkpoint is not None and record.state != "done":
        next_step(f"clusterctl launch --resume {record.run_id}", "continue it")
    next_step(f"clusterctl collect-logs {record.run_id}", "logs")


def print_detached(run_id: str) -> None:
    err.print(f"Detached. {run_id} continues; its supervisor restarts it when a phone fails.", markup=False)
    next_step(f"clusterctl attach {run_id}", "watch it")
    next_step(f"clusterctl stop {run_id}", "stop it")
