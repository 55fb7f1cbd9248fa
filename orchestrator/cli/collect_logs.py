"""`clusterctl collect-logs`: the files of a run from every phone, and their merged log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.attach import RunArgument
from orchestrator.cli.options import InventoryOption, JsonOption
from orchestrator.errors import EXIT_FAILED

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.records.record import RunRecord


def collect_logs(
    run: RunArgument = None,
    out: Annotated[Path, typer.Option(help="Directory to copy to; every run gets a folder in it.")] = Path("logs"),
    archive: Annotated[bool, typer.Option("--archive", help="Also pack the folder as RUN.tar.gz.")] = False,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the logs of a run from all its phones, and merge them into one log sorted by time."""
    from orchestrator.cli.session import open_session
    from orchestrator.logs.collect import collect_logs as collect
    from orchestrator.records.record import RunStore
    from orchestrator.view.console import print_json
    from orchestrator.view.logs import as_document, print_collected
    from orchestrator.view.progress import phone_progress

    session = open_session(inventory)
    record = RunStore(session.state.runs).find(run)
    chosen = phones_of(session, record, lost=True)
    out.mkdir(parents=True, exist_ok=True)  # before any phone is asked
    with chosen.fleet() as fleet, phone_progress("collecting from", chosen.phones) as on_done:
        collected = collect(fleet, record.run_id, out, archive=archive, on_done=on_done)
    if as_json:
        print_json(as_document(record.run_id, collected))
    else:
        print_collected(collected)
    if not collected.complete:
        raise typer.Exit(EXIT_FAILED)


def phones_of(session: Session, record: RunRecord, *, lost: bool = False) -> Session:
    """Those that take part now; `lost`: and those that did."""
    from dataclasses import replace

    from orchestrator.errors import UsageError

    names = {*record.phones, *(record.requested if lost else ())}
    phones = tuple(phone for phone in session.cluster if phone.name in names)
    if not phones:
        raise UsageError(
            f"none of {record.run_id}'s phones is in {session.cluster.source}",
            remedy="-i with the inventory it was launched from",
        )
    return replace(session, phones=phones)
