"""`clusterctl runs`: past and current runs."""

from __future__ import annotations

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption


@examples("clusterctl runs", "clusterctl runs --json")
def runs(inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """List this cluster's runs with state, loss and speed, newest last."""
    from dataclasses import asdict

    from orchestrator.cli.session import open_session
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.stop import refresh
    from orchestrator.view.console import out, print_json
    from orchestrator.view.progress import working
    from orchestrator.view.runs import print_runs

    session = open_session(inventory)
    store = RunStore(session.state.runs)
    unanswered: set[str] = set()
    if any(not record.over for record in store.all()):
        with session.fleet() as fleet, working("querying the head phones"):
            unanswered = refresh(store, fleet)
    if as_json:
        print_json([{**asdict(record), "confirmed": record.run_id not in unanswered} for record in store.all()])
    else:
        print_runs(out, store.all(), unanswered)
