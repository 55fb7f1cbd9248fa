"""`clusterctl runs`: past and current runs."""

from __future__ import annotations

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption


@examples("clusterctl runs", "clusterctl runs --json")
def runs(inventory: InventoryOption = None, as_json: JsonOption = False) -> None:
    """List this cluster's runs with state, loss and speed, newest last."""
    from dataclasses import asdict

    from orchestrator.cli.session import open_session
    from orchestrator.cli.supervision import check_supervision
    from orchestrator.records.activity import read_activity
    from orchestrator.records.record import RunStore
    from orchestrator.view.console import out, print_json
    from orchestrator.view.runs import print_runs
    from orchestrator.view.supervisor import print_supervisor

    session = open_session(inventory)
    supervisor, unfinished = check_supervision(session)
    store = RunStore(session.state.runs)
    if as_json:
        print_json([{**asdict(record), "supervised": bool(supervisor and not record.over)} for record in store.all()])
        return
    problems = {each.run_id: read_activity(store.directory(each.run_id)).problem for each in unfinished}
    print_runs(out, store.all(), problems)
    print_supervisor(out, supervisor, unfinished)
