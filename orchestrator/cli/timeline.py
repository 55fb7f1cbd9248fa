"""`clusterctl timeline`: a trace of what every phone of a run did when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, RunArgument
from orchestrator.errors import EXIT_FAILED


@examples("clusterctl timeline", "clusterctl timeline 20260131-1200 -o trace.json")
def timeline(
    run: RunArgument = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output file. Default: RUN.trace.json.")] = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a Chrome trace of a run.

    Also shows how much of each step is spent waiting for the network.
    """
    import json
    from dataclasses import asdict

    from orchestrator.cli.collect_logs import phones_of
    from orchestrator.cli.session import open_run_session
    from orchestrator.logs.trace import break_down_steps, fetch_trace, to_chrome_trace
    from orchestrator.view.console import print_json
    from orchestrator.view.logs import print_timeline
    from orchestrator.view.outcomes import print_outcomes
    from orchestrator.view.progress import phone_progress

    session, record = open_run_session(run, inventory)
    chosen = phones_of(session, record)
    with chosen.fleet() as fleet, phone_progress("reading the trace of", chosen.phones) as on_done:
        outcomes = fleet.map(lambda phone: fetch_trace(phone, record.run_id, record.attempt), on_done=on_done)
    traces = sorted((each.value for each in outcomes if each.value is not None), key=lambda each: each.rank)
    breakdowns = [found for each in traces if (found := break_down_steps(each))]
    path = out or Path(f"{record.run_id}.trace.json")
    if traces:
        path.write_text(json.dumps(to_chrome_trace(traces)), encoding="utf-8")
    if as_json:
        print_json({"run_id": record.run_id, "file": str(path), "ranks": [asdict(each) for each in breakdowns]})
    elif traces:
        print_timeline(breakdowns, path, max(each.clock_error_s for each in traces))
    if outcomes.failures:
        print_outcomes(outcomes)
        raise typer.Exit(EXIT_FAILED)
