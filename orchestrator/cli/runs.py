"""`clusterctl runs`: past and current runs."""

from __future__ import annotations

from orchestrator.cli.help import examples
from orchestrator.cli.options import ClusterOption, JsonOption


@examples("clusterctl runs", "clusterctl runs --json")
def runs(inventory: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List runs with state, loss and speed, newest last."""
    import time
    from dataclasses import asdict

    from orchestrator.cli.session import selected_clusters
    from orchestrator.cli.supervision import check_supervision
    from orchestrator.records.activity import read_activity
    from orchestrator.records.record import stored_runs
    from orchestrator.records.run_tail import current_status
    from orchestrator.view.console import out, print_json
    from orchestrator.view.runs import print_runs, print_waiting_runs
    from orchestrator.view.supervisor import print_supervisor

    clusters = selected_clusters(inventory)
    supervision = {state.cluster: check_supervision(state) for state in clusters}
    listed = stored_runs(clusters)
    supervised = {
        record.run_id for supervisor, unfinished in supervision.values() if supervisor for record in unfinished
    }
    if as_json:
        print_json(
            [
                {**asdict(run.record), "cluster": run.state.cluster, "supervised": run.record.run_id in supervised}
                for run in listed
            ]
        )
        return
    ids = [(run.record.run_id, run.store) for run in listed if not run.record.over]
    print_runs(out, listed, {run_id: read_activity(store.directory(run_id)).problem for run_id, store in ids})
    print_waiting_runs(
        out, [current_status(run.store, run.record, time.time()) for run in listed if not run.record.over]
    )
    for supervisor, unfinished in supervision.values():
        print_supervisor(out, supervisor, unfinished)
