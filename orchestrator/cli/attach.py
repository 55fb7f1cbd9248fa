"""`clusterctl attach`: watch a run that goes on, or see how one ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import InventoryOption, JsonOption
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.fleet import Fleet
    from orchestrator.runs.events import Progress
    from orchestrator.runs.record import RunRecord, RunStore
    from orchestrator.runs.watch import Connect

LARGE = 50e6  # bytes: takes more than a few seconds

RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run, or the start of its id. Default: the newest.", show_default=False),
]


def attach(run: RunArgument = None, inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """Watch a run that is going on, or see how it ended."""
    from orchestrator.cli.session import open_session
    from orchestrator.runs.record import RunStore

    session = open_session(inventory)
    follow_to_the_end(session, RunStore(session.state.runs).find(run), as_json)


def follow_to_the_end(session: Session, record: RunRecord, as_json: bool) -> None:
    """Shared with `launch`. Exit code 0 only when the run is done, or a person chose to let it go on."""
    with head_fleet(session, record) as fleet:
        try:
            state = _follow(session, record, fleet, as_json)
        except KeyboardInterrupt:
            raise typer.Exit(_stop_or_detach(session, record, fleet)) from None
    if state != "done":
        raise typer.Exit(EXIT_FAILED)


def head_fleet(session: Session, record: RunRecord) -> Fleet:
    """A connection to the run's head phone alone."""
    if record.head not in session.cluster:
        raise UsageError(
            f"{record.run_id} was led by {record.head}, which is not in {session.cluster.source}",
            remedy="-i with the inventory it was launched from",
        )
    from orchestrator.fleet import Fleet

    head = session.cluster.phone(record.head)
    return Fleet((head,), session.state, session.network, key=session.cluster.ssh_key)


def _follow(session: Session, record: RunRecord, fleet: Fleet, as_json: bool) -> str:
    from orchestrator.runs.record import RunStore
    from orchestrator.runs.watch import explain_failure, watch
    from orchestrator.view.console import print_json
    from orchestrator.view.launch import print_summary, run_view, summary_json

    store, (head,) = RunStore(session.state.runs), fleet.phones
    spec = store.spec(record.run_id)
    with run_view(spec) as view:
        progress = watch(store, record, lambda: fleet.connection(head), view.update, view.broken)
    checkpoint = _fetch_checkpoint(store, record, progress, lambda: fleet.connection(head))
    diagnosis = None
    if progress.state == "failed":
        diagnosis = explain_failure(store, record.run_id, progress, lambda: fleet.connection(head))
    if as_json:
        print_json(summary_json(spec, progress, diagnosis, checkpoint))
    else:
        print_summary(spec, progress, diagnosis, checkpoint)
    return progress.state


def _fetch_checkpoint(store: RunStore, record: RunRecord, progress: Progress, connect: Connect) -> Path | None:
    """Whatever goes wrong with it, the run's end is told as it was."""
    from orchestrator.errors import PhoneError
    from orchestrator.runs.checkpoints import FetchError
    from orchestrator.runs.watch import fetch_checkpoint
    from orchestrator.view.console import note, warn

    told = progress.checkpoint
    if told is not None and (size := told.number("bytes") or 0.0) > LARGE:
        note(f"bringing {told.text('file')} here: {size / 1e6:,.0f} MB")
    try:
        return fetch_checkpoint(store, record.run_id, progress, connect)
    except (FetchError, PhoneError) as error:
        remedy = error.remedy or f"clusterctl attach {record.run_id}"
        warn(f"the run's checkpoint is not here: {error.message}; try: {remedy}")
    except OSError as error:
        warn(f"the run's checkpoint is not here: {error.strerror}")
    return None


def _stop_or_detach(session: Session, record: RunRecord, fleet: Fleet) -> int:
    from orchestrator.runs.control import stop
    from orchestrator.runs.record import RunStore
    from orchestrator.view.launch import Answer, ask_stop_or_detach, say_detached, say_stopped

    answer = ask_stop_or_detach()
    if answer is Answer.STOP:
        say_stopped(stop(RunStore(session.state.runs), record, fleet.connection(fleet.phones[0])))
        return EXIT_FAILED
    say_detached(record.run_id)
    return 0 if answer is Answer.DETACH else EXIT_INTERRUPTED
