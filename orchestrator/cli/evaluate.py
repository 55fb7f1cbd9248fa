"""`clusterctl eval`: how good a trained network is on samples it never saw."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.model_argument import ModelOption, ThreadsOption, TrainedArgument
from orchestrator.cli.options import InventoryOption, JsonOption


def evaluate(
    trained: TrainedArgument = None,
    data: Annotated[
        str | None, typer.Option(help="A dataset of this computer's. Default: the run's own.", show_default=False)
    ] = None,
    model: ModelOption = None,
    threads: ThreadsOption = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a trained network on a dataset's held-out samples, on this computer."""
    from orchestrator.cli.agent_errors import engine_errors
    from orchestrator.cli.model_argument import cores, find_trained
    from orchestrator.errors import UsageError
    from orchestrator.inference.evaluate import judge
    from orchestrator.view.inference import print_evaluation

    found = find_trained(trained, model, inventory)
    run = found.about.run
    name = data or (run.data.name if run else None)
    if name is None or name == "synthetic":
        raise UsageError(f"{found.source} was trained on no dataset", remedy="name one with --data")
    with engine_errors():
        judged = judge(found, name, threads or cores())
    print_evaluation(found, judged, as_json=as_json)
