"""`clusterctl status`: the state of all phones on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.health.phone_health import PhoneHealth

WatchOption = Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")]


@examples("clusterctl status", "clusterctl status --watch", "clusterctl status --limit sw1 --json")
def status(
    watch: WatchOption = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of every phone.

    Shows state, temperature, battery, CPU frequency, memory, agent version and current run. Exit code 1 if a phone does
    not answer or is broken.
    """
    import time
    from dataclasses import asdict

    from orchestrator.cli.session import open_session
    from orchestrator.cli.supervision import check_supervision
    from orchestrator.errors import UsageError
    from orchestrator.health.phone_health import collect_health
    from orchestrator.health.preflight import mark_unfit
    from orchestrator.records.record import RunStore
    from orchestrator.records.run_tail import current_status
    from orchestrator.view.console import out, print_json
    from orchestrator.view.progress import phone_progress
    from orchestrator.view.runs import print_waiting_runs
    from orchestrator.view.status import as_document, print_status, watch_status
    from orchestrator.view.supervisor import print_supervisor, supervisor_json

    if watch and as_json:
        raise UsageError("--watch and --json cannot be combined", remedy="remove one of them")
    session = open_session(inventory, limit)
    supervisor, unfinished = check_supervision(session.state)
    with session.fleet() as fleet:
        if watch:
            watch_status(out, session.cluster.name, lambda: mark_unfit(collect_health(fleet), session.cluster))
            return
        with phone_progress("querying", fleet.phones) as on_done:
            health = mark_unfit(collect_health(fleet, on_done), session.cluster)
    store, now = RunStore(session.state.runs), time.time()
    runs = [current_status(store, record, now) for record in unfinished]
    if as_json:
        shown = {"runs": [asdict(each) for each in runs], "supervisor": supervisor_json(supervisor)}
        print_json({**as_document(session.cluster.name, health), **shown})
    else:
        print_status(out, session.cluster.name, health)
        print_waiting_runs(out, runs)
        print_supervisor(out, supervisor, unfinished)
    _exit_by(health)


def _exit_by(health: Sequence[PhoneHealth]) -> None:
    from orchestrator.health.phone_health import PhoneState

    if any(each.state in {PhoneState.OFF, PhoneState.FAILED} for each in health):
        raise typer.Exit(EXIT_FAILED)
