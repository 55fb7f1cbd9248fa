"""`clusterctl attach`: follow a running run, or see how one ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, RunArgument
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.records.record import RunRecord
    from orchestrator.records.run_tail import RunTail


@examples(
    "clusterctl attach",
    "clusterctl attach 20260131-1200",
    "clusterctl attach --min-phones 3",
    "clusterctl attach --json > result.json",
)
def attach(
    run: RunArgument = None,
    min_phones: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="From now on, let the run continue with as few as N phones."),
    ] = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a run until it ends, or show how it ended.

    The run continues without being attached to: its supervisor, a process in the background, restarts it when a phone
    fails.
    """
    from orchestrator.cli.session import open_run_session

    session, record = open_run_session(run, inventory)
    if min_phones is not None:
        _set_min_phones(session, record, min_phones)
    follow_to_end(session, record, as_json)


def _set_min_phones(session: Session, record: RunRecord, number: int) -> None:
    from orchestrator.errors import UsageError
    from orchestrator.records.record import RunStore

    if record.over:
        raise UsageError(f"{record.run_id} is {record.state}", remedy=f"clusterctl launch --resume {record.run_id}")
    if number > len(record.requested):
        raise UsageError(
            f"--min-phones {number}, but {record.run_id} was launched with {len(record.requested)} phones",
            remedy=f"use at most {len(record.requested)}",
        )
    RunStore(session.state.runs).set_min_phones(record.run_id, number)


def follow_to_end(session: Session, record: RunRecord, as_json: bool) -> None:
    """Shared with `launch`. Exit code 0 only if the run is done, or a person detached from it."""
    from orchestrator.view.console import print_json
    from orchestrator.view.run_summary import print_summary, summary_json

    try:
        tail = _watch(session, record)
        checkpoint = _find_checkpoint(session, tail)
    except KeyboardInterrupt:
        raise typer.Exit(_stop_or_detach(session, record)) from None
    if as_json:
        print_json(summary_json(tail.spec, tail.progress, tail.record.failure, checkpoint))
    else:
        print_summary(tail.spec, tail.progress, tail.record.failure, checkpoint)
    if tail.record.state != "done":
        raise typer.Exit(EXIT_FAILED)


def _watch(session: Session, record: RunRecord) -> RunTail:
    from orchestrator.records.record import RunStore
    from orchestrator.records.run_tail import RunTail
    from orchestrator.supervisor.service import ensure_supervisor, start_supervisor
    from orchestrator.view.run_view import open_run_view, watch_run

    if not record.over:
        start_supervisor(session.cluster, session.state).wait()
    tail = RunTail(RunStore(session.state.runs), record.run_id)
    with open_run_view(tail.spec) as view:
        watch_run(tail, view, lambda: ensure_supervisor(session.cluster, session.state))
    return tail


def _find_checkpoint(session: Session, tail: RunTail) -> Path | None:
    """The supervisor has fetched it, unless the phones did not answer. A failure here does not change how the run
    ended."""
    from orchestrator.errors import ClusterctlError
    from orchestrator.launch.context import LaunchContext
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.final_checkpoint import collect_checkpoint, local_checkpoint
    from orchestrator.supervisor.run_context import open_run_fleet
    from orchestrator.view.console import warn
    from orchestrator.view.progress import working

    record, progress = tail.record, tail.progress
    found = local_checkpoint(RunStore(session.state.runs), record.run_id, progress)
    if found is not None or progress.checkpoint is None or record.state == "stopped":
        return found
    try:
        with open_run_fleet(session.cluster, session.state, record) as fleet, working("fetching the last checkpoint"):
            launch = LaunchContext(session.cluster, session.state, fleet, lambda *_: None)
            return collect_checkpoint(launch, record, progress)
    except (ClusterctlError, OSError) as error:
        reason = error.message if isinstance(error, ClusterctlError) else error.strerror
        warn(f"could not fetch the last checkpoint: {reason}; try: clusterctl attach {record.run_id}")
    return None


def _stop_or_detach(session: Session, record: RunRecord) -> int:
    from orchestrator.cli.stop import stop_run
    from orchestrator.view.stop_or_detach import StopOrDetach, ask_stop_or_detach, print_detached, print_stopped

    answer = ask_stop_or_detach()
    if answer is StopOrDetach.STOP:
        print_stopped(stop_run(session, record))
        return EXIT_FAILED
    print_detached(record.run_id)
    return 0 if answer is StopOrDetach.DETACH else EXIT_INTERRUPTED
