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
    from orchestrator.records.checkpoint_copies import Connect
    from orchestrator.records.events import Progress
    from orchestrator.records.record import RunRecord, RunStore

LARGE = 50e6  # bytes: takes more than a few seconds
TCP_S = 2.0  # a phone of a run that does not answer the network for so long is gone

RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run, or the start of its id. Default: the newest.", show_default=False),
]


def attach(run: RunArgument = None, inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """Watch a run that is going on, or see how it ended."""
    from orchestrator.cli.session import open_session
    from orchestrator.records.record import RunStore

    session = open_session(inventory)
    follow_to_the_end(session, RunStore(session.state.runs).find(run), as_json)


def follow_to_the_end(session: Session, record: RunRecord, as_json: bool) -> None:
    """Shared with `launch`. Exit code 0 only when the run is done, or a person chose to let it go on."""
    with run_fleet(session, record) as fleet:
        try:
            state = _follow(session, record, fleet, as_json)
        except KeyboardInterrupt:
            raise typer.Exit(_stop_or_detach(session, record, fleet)) from None
    if state != "done":
        raise typer.Exit(EXIT_FAILED)


def run_fleet(session: Session, record: RunRecord) -> Fleet:
    """All phones that may take part in the run; connections are made when needed."""
    if record.head not in session.cluster:
        raise UsageError(
            f"{record.run_id} was led by {record.head}, which is not in {session.cluster.source}",
            remedy="-i with the inventory it was launched from",
        )
    from orchestrator.fleet import Fleet
    from orchestrator.fleet.timeouts import Timeouts

    names = {*record.phones, *record.wanted, *record.spares}
    phones = [phone for phone in session.cluster.phones if phone.name in names]
    timeouts = Timeouts(tcp=TCP_S)
    return Fleet(phones, session.state, session.network, key=session.cluster.ssh_key, timeouts=timeouts)


def _follow(session: Session, record: RunRecord, fleet: Fleet, as_json: bool) -> str:
    from orchestrator.launch.launcher import Launcher
    from orchestrator.records.checkpoint_copies import remove_copies
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.supervisor import Guard, only_guard
    from orchestrator.view.console import print_json
    from orchestrator.view.run_summary import print_summary, summary_json
    from orchestrator.view.run_view import open_run_view

    store = RunStore(session.state.runs)
    with only_guard(store, record.run_id) as only, open_run_view(store.spec(record.run_id, record.attempt)) as view:
        launcher = Launcher(session.cluster, session.state, fleet, view.phase)
        guard = Guard(launcher, record, view.update, view.disconnected, guards=only)
        guard.carry()
    progress, diagnosis, spec = guard.progress, guard.diagnosis, guard.spec
    head = session.cluster.phone(guard.record.head)
    checkpoint = _fetch_checkpoint(store, guard.record, progress, lambda: fleet.connection(head))
    if checkpoint is not None and progress.state == "done":
        remove_copies(store, guard.record, fleet)
    if as_json:
        print_json(summary_json(spec, progress, diagnosis, checkpoint))
    else:
        print_summary(spec, progress, diagnosis, checkpoint)
    return progress.state


def _fetch_checkpoint(store: RunStore, record: RunRecord, progress: Progress, connect: Connect) -> Path | None:
    """Whatever goes wrong with it, the run's end is told as it was."""
    from orchestrator.errors import PhoneError
    from orchestrator.records.checkpoint_copies import fetch_checkpoint
    from orchestrator.records.checkpoints import FetchError
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
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.stop import stop
    from orchestrator.view.stop_or_detach import StopOrDetach, ask_stop_or_detach, print_detached, print_stopped

    answer = ask_stop_or_detach()
    if answer is StopOrDetach.STOP:
        store = RunStore(session.state.runs)
        print_stopped(stop(store, store.find(record.run_id), fleet))
        return EXIT_FAILED
    print_detached(record.run_id)
    return 0 if answer is StopOrDetach.DETACH else EXIT_INTERRUPTED
