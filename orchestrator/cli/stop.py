"""`clusterctl stop`: stop a run on all its phones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, RunArgument

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.records.record import RunRecord


@examples("clusterctl stop", "clusterctl stop 20260131-1200")
def stop(run: RunArgument = None, inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """Stop a run on all its phones."""
    from dataclasses import asdict

    from orchestrator.cli.session import open_run_session
    from orchestrator.view.console import print_json
    from orchestrator.view.stop_or_detach import print_stopped

    record = stop_run(*open_run_session(run, inventory))
    print_stopped(record)
    if as_json:
        print_json(asdict(record))


def stop_run(session: Session, record: RunRecord) -> RunRecord:
    """Shared with `launch` and `attach`."""
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.run_context import open_run_fleet
    from orchestrator.supervisor.stop import request_stop
    from orchestrator.view.progress import working

    store = RunStore(session.state.runs)
    with open_run_fleet(session.cluster, session.state, record) as fleet, working(f"stopping {record.run_id}"):
        return request_stop(store, store.read(record.run_id), fleet)
