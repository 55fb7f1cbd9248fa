"""`clusterctl predict`: what pictures show, by a trained network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.model_argument import ModelOption, ThreadsOption
from orchestrator.cli.options import InventoryOption, JsonOption


def predict(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="JPEG or PNG files.")],
    run: Annotated[
        str | None, typer.Option(help="Whose network: a run, or the start of its id. Default: the newest.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Instead: a file of weights.")] = None,
    top: Annotated[int, typer.Option(help="How many classes to tell of each.", min=1)] = 5,
    model: ModelOption = None,
    threads: ThreadsOption = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what pictures show, by a trained network, on this computer."""
    from orchestrator.cli.agent_errors import engine_errors
    from orchestrator.cli.model_argument import cores, find_trained
    from orchestrator.errors import UsageError
    from orchestrator.inference.evaluate import predict as guess
    from orchestrator.inference.model import open_trained
    from orchestrator.view.inference import print_predictions

    if run is not None and weights is not None:
        raise UsageError("--run and --weights exclude each other", remedy="give only one of them")
    with engine_errors():
        found = open_trained(weights, model) if weights else find_trained(run, model, inventory)
        guesses = guess(found, images, top, threads or cores())
    print_predictions(images, guesses, as_json=as_json)
