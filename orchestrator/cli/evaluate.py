"""`clusterctl eval`: accuracy of a trained model on test images."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.model_argument import ModelOption, ThreadsOption, TrainedArgument
from orchestrator.cli.options import ClusterOption, JsonOption


@examples(
    "clusterctl eval",
    "clusterctl eval 20260131-1200 --data cifar10",
    "clusterctl eval resnet50.safetensors --model resnet50 --data flowers --json",
)
def evaluate(
    trained: TrainedArgument = None,
    data: Annotated[
        str | None,
        typer.Option(help="Dataset on this computer whose test images are used. Default: the dataset of the run."),
    ] = None,
    model: ModelOption = None,
    threads: ThreadsOption = None,
    inventory: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a trained model's accuracy on test images.

    Runs on this computer.
    """
    from orchestrator.cli.model_argument import cores, find_trained
    from orchestrator.errors import UsageError, agent_errors
    from orchestrator.inference import evaluate as inference
    from orchestrator.view.inference import print_evaluation
    from orchestrator.view.progress import computing

    found = find_trained(trained, model, inventory)
    run = found.about.run
    name = data or (run.data.name if run else None)
    if name is None or name == "synthetic":
        raise UsageError(
            f"{found.source} does not say what data it was trained on", remedy="name a dataset: --data NAME"
        )
    with agent_errors(), computing(f"evaluating on {name}"):
        result = inference.evaluate(found, name, threads or cores())
    print_evaluation(found, result, as_json=as_json)
