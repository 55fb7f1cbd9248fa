"""`clusterctl predict`: classify images with a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.model_argument import ModelOption, ThreadsOption
from orchestrator.cli.options import ClusterOption, JsonOption


@examples(
    "clusterctl predict cat.jpg dog.jpg",
    "clusterctl predict *.png --run 20260131-1200 --top 1",
    "clusterctl predict cat.jpg --weights resnet50.safetensors --model resnet50",
)
def predict(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="JPEG or PNG files.")],
    run: Annotated[
        str | None, typer.Option(help="Run whose model to use: a run id or unique prefix. Default: the newest run.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Use this weights file instead of a run.")] = None,
    top: Annotated[int, typer.Option(help="Number of classes to print per image.", min=1)] = 5,
    model: ModelOption = None,
    threads: ThreadsOption = None,
    inventory: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Classify images with a trained model.

    Runs on this computer.
    """
    from orchestrator.cli.model_argument import cores, find_trained
    from orchestrator.errors import UsageError, agent_errors
    from orchestrator.inference.evaluate import predict as classify
    from orchestrator.inference.model import open_trained
    from orchestrator.text import count_of
    from orchestrator.view.inference import print_predictions
    from orchestrator.view.progress import computing

    if run is not None and weights is not None:
        raise UsageError("--run and --weights cannot be combined", remedy="remove one of them")
    with agent_errors():
        found = open_trained(weights, model) if weights else find_trained(run, model, inventory)
        with computing(f"classifying {count_of(images, 'image')}"):
            predictions = classify(found, images, top, threads or cores())
    print_predictions(images, predictions, as_json=as_json)
