"""`clusterctl stop`: end a run on all its phones."""

from __future__ import annotations

from orchestrator.cli.attach import RunArgument, run_fleet
from orchestrator.cli.options import InventoryOption, JsonOption


def stop(run: RunArgument = None, inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """End a run on all its phones."""
    from dataclasses import asdict

    from orchestrator.cli.session import open_session
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor import stop
    from orchestrator.view.console import print_json
    from orchestrator.view.stop_or_detach import print_stopped

    session = open_session(inventory)
    store = RunStore(session.state.runs)
    record = store.find(run)
    with run_fleet(session, record) as fleet:
        record = stop.stop(store, record, fleet)
    print_stopped(record)
    if as_json:
        print_json(asdict(record))
