"""`clusterctl attach`: follow a running run, or see how one ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.fleet import Fleet
    from orchestrator.records.checkpoints import Connect
    from orchestrator.records.events import Progress
    from orchestrator.records.record import RunRecord, RunStore

LARGE_CHECKPOINT = 50e6  # bytes: takes more than a few seconds to fetch
TCP_S = 2.0  # connect timeout: a phone of a run that needs longer counts as unreachable

RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Run id or unique prefix. Default: the newest run.", show_default=False),
]


@examples("clusterctl attach", "clusterctl attach 20260131-1200", "clusterctl attach --json > result.json")
def attach(run: RunArgument = None, inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """Follow a run until it ends, or show how it ended.

    While attached, this computer also restarts the run when a phone fails.
    """
    from orchestrator.cli.session import open_session
    from orchestrator.records.record import RunStore

    session = open_session(inventory)
    follow_to_end(session, RunStore(session.state.runs).find(run), as_json)


def follow_to_end(session: Session, record: RunRecord, as_json: bool) -> None:
    """Shared with `launch`. Exit code 0 only if the run is done, or a person detached from it."""
    with run_fleet(session, record) as fleet:
        try:
            state = _follow(session, record, fleet, as_json)
        except KeyboardInterrupt:
            raise typer.Exit(_stop_or_detach(session, record, fleet)) from None
    if state != "done":
        raise typer.Exit(EXIT_FAILED)


def run_fleet(session: Session, record: RunRecord) -> Fleet:
    """All phones that may take part in the run. Connections are made when needed."""
    if record.head not in session.cluster:
        raise UsageError(
            f"head phone {record.head} of {record.run_id} is not in {session.cluster.source}",
            remedy="pass the inventory that the run was launched with: -i FILE",
        )
    from orchestrator.fleet import Fleet
    from orchestrator.fleet.timeouts import Timeouts

    names = {*record.phones, *record.requested, *record.spares}
    phones = [phone for phone in session.cluster.phones if phone.name in names]
    timeouts = Timeouts(tcp=TCP_S)
    return Fleet(phones, session.state, session.network, key=session.cluster.ssh_key, timeouts=timeouts)


def _follow(session: Session, record: RunRecord, fleet: Fleet, as_json: bool) -> str:
    from orchestrator.launch.context import LaunchContext
    from orchestrator.records.checkpoints import remove_from_phones
    from orchestrator.records.record import RunStore
    from orchestrator.records.run_tail import RunTail
    from orchestrator.supervisor.supervisor import Supervisor, supervisor_lock
    from orchestrator.view.console import print_json
    from orchestrator.view.run_summary import print_summary, summary_json
    from orchestrator.view.run_view import open_run_view, watch_run

    store = RunStore(session.state.runs)
    with (
        supervisor_lock(store, record.run_id) as locked,
        open_run_view(store.spec(record.run_id, record.attempt)) as view,
    ):
        if not locked:
            return watch_run(RunTail(store, record.run_id), view).progress.state
        context = LaunchContext(session.cluster, session.state, fleet, view.phase)
        supervisor = Supervisor(context, record, view.update, view.disconnected)
        supervisor.run()
    progress, diagnosis, spec = supervisor.progress, supervisor.diagnosis, supervisor.spec
    head = session.cluster.phone(supervisor.record.head)
    checkpoint = _fetch_checkpoint(store, supervisor.record, progress, lambda: fleet.connection(head))
    if checkpoint is not None and progress.state == "done":
        remove_from_phones(store, supervisor.record, fleet)
    if as_json:
        print_json(summary_json(spec, progress, diagnosis, checkpoint))
    else:
        print_summary(spec, progress, diagnosis, checkpoint)
    return progress.state


def _fetch_checkpoint(store: RunStore, record: RunRecord, progress: Progress, connect: Connect) -> Path | None:
    """A failure here is only a warning: it does not change how the run ended."""
    from orchestrator.errors import PhoneError
    from orchestrator.records.checkpoints import FetchError, fetch_last
    from orchestrator.view.console import note, warn
    from orchestrator.view.progress import working

    announced = progress.checkpoint
    if announced is not None and (size := announced.number("bytes") or 0.0) > LARGE_CHECKPOINT:
        note(f"fetching {announced.text('file')}: {size / 1e6:,.0f} MB")
    try:
        with working("fetching the last checkpoint"):
            return fetch_last(store, record.run_id, progress, connect)
    except (FetchError, PhoneError) as error:
        remedy = error.remedy or f"clusterctl attach {record.run_id}"
        warn(f"could not fetch the last checkpoint: {error.message}; try: {remedy}")
    except OSError as error:
        warn(f"could not fetch the last checkpoint: {error.strerror}")
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
