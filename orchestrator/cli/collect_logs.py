"""`clusterctl collect-logs`: the log files of a run from all its phones, and a merged log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, RunArgument
from orchestrator.errors import EXIT_FAILED

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.records.record import RunRecord


@examples("clusterctl collect-logs", "clusterctl collect-logs 20260131-1200 --out /tmp/logs --archive")
def collect_logs(
    run: RunArgument = None,
    out: Annotated[Path, typer.Option(help="Output directory; one subdirectory per run.")] = Path("logs"),
    archive: Annotated[bool, typer.Option("--archive", help="Also pack the files as RUN.tar.gz.")] = False,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a run's logs from all its phones.

    Also merges the logs into one, sorted by time.
    """
    from orchestrator.cli.session import open_run_session
    from orchestrator.logs.collect import collect_logs as collect
    from orchestrator.view.console import print_json
    from orchestrator.view.logs import as_document, print_collected
    from orchestrator.view.progress import phone_progress

    session, record = open_run_session(run, inventory)
    chosen = phones_of(session, record, lost=True)
    out.mkdir(parents=True, exist_ok=True)  # fails before any phone is contacted
    with chosen.fleet() as fleet, phone_progress("collecting logs from", chosen.phones) as on_done:
        collected = collect(fleet, record.run_id, out, archive=archive, on_done=on_done)
    if as_json:
        print_json(as_document(record.run_id, collected))
    else:
        print_collected(collected)
    if not collected.complete:
        raise typer.Exit(EXIT_FAILED)


def phones_of(session: Session, record: RunRecord, *, lost: bool = False) -> Session:
    """The phones of the current attempt; with `lost`, also those the run was launched with."""
    from dataclasses import replace

    from orchestrator.errors import UsageError

    names = {*record.phones, *(record.requested if lost else ())}
    phones = tuple(phone for phone in session.cluster if phone.name in names)
    if not phones:
        raise UsageError(
            f"no phone of {record.run_id} is in {session.cluster.source}",
            remedy="give the inventory it was launched with: -i INVENTORY",
        )
    return replace(session, phones=phones)
