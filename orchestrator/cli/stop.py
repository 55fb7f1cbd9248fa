"""`clusterctl stop`: save the newest step of a run and end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, RunArgument

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.records.record import RunRecord
    from orchestrator.supervisor.stop import StoppedRun


@examples("clusterctl stop", "clusterctl stop 20260131-1200", "clusterctl stop --discard")
def stop(
    run: RunArgument = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="End the run at once, without saving its newest step.")
    ] = False,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Save the newest step of a run as a checkpoint, then end it on all its phones.

    To continue it later: clusterctl launch --resume RUN.
    """
    from dataclasses import asdict

    from orchestrator.cli.session import open_run_session
    from orchestrator.view.console import print_json
    from orchestrator.view.stop_or_detach import print_stopped

    stopped = stop_run(*open_run_session(run, inventory), discard=discard)
    print_stopped(stopped)
    if as_json:
        checkpoint = stopped.checkpoint
        saved = {"checkpoint": checkpoint and str(checkpoint.path), "saved_step": checkpoint and checkpoint.step}
        print_json({**asdict(stopped.record), **saved})


def stop_run(session: Session, record: RunRecord, *, discard: bool = False) -> StoppedRun:
    """Shared with `launch` and `attach`."""
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.run_context import open_run_fleet
    from orchestrator.supervisor.stop import request_stop
    from orchestrator.view.progress import working

    store = RunStore(session.state.runs)
    with open_run_fleet(session.cluster, session.state, record) as fleet, working(f"stopping {record.run_id}"):
        return request_stop(store, store.read(record.run_id), fleet, discard=discard)
