"""`clusterctl stop`: stop a run on all its phones."""

from __future__ import annotations

from orchestrator.cli.attach import RunArgument, run_fleet
from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption


@examples("clusterctl stop", "clusterctl stop 20260131-1200")
def stop(run: RunArgument = None, inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """Stop a run on all its phones."""
    from dataclasses import asdict

    from orchestrator.cli.session import open_session
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor import stop
    from orchestrator.view.console import print_json
    from orchestrator.view.progress import working
    from orchestrator.view.stop_or_detach import print_stopped

    session = open_session(inventory)
    store = RunStore(session.state.runs)
    record = store.find(run)
    with run_fleet(session, record) as fleet, working(f"stopping {record.run_id}"):
        record = stop.stop(store, record, fleet)
    print_stopped(record)
    if as_json:
        print_json(asdict(record))
