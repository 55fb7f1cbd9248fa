"""`clusterctl models`: the available models, and how much memory training needs."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.choices import PlannedBackend
from orchestrator.cli.help import EXPERT, format_examples
from orchestrator.cli.options import JsonOption, complete_model
from orchestrator.errors import agent_errors
from phone_agent.contract.choices import MAX_THREADS, Activations

app = typer.Typer(help="List models, and show how much memory training needs.", no_args_is_help=True)

PHONE_MEMORY = "2.8GB"  # free memory of the phones in the paper
MAX_BATCH = 1 << 20


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """List the models with parameter counts, input sizes and FLOPs."""
    from orchestrator.view.console import print_json
    from orchestrator.view.models import overview_document, print_overviews
    from phone_agent.api.models import all_overviews

    found = all_overviews()
    if as_json:
        print_json([overview_document(one) for one in found])
    else:
        print_overviews(found)


@app.command(
    epilog=format_examples(
        "clusterctl models show resnet50",
        "clusterctl models show mobilenet_v1 --batch 64 --memory 2GB --activations fp16",
        "clusterctl models show resnet50 --classes 10 --image 64 --json",
    )
)
def show(
    name: Annotated[str, typer.Argument(help="Model, as in `clusterctl models list`.", autocompletion=complete_model)],
    batch: Annotated[int, typer.Option(help="Images per step.", min=1, max=MAX_BATCH)] = 32,
    memory: Annotated[
        str, typer.Option(help="Free memory per phone. Shows whether the batch fits, and the largest batch that does.")
    ] = PHONE_MEMORY,
    classes: Annotated[int | None, typer.Option(help="Number of classes. Default: as published.")] = None,
    image: Annotated[
        str | None,
        typer.Option(
            help="Image size: pixels per side, or HEIGHTxWIDTH, or HEIGHTxWIDTHxCHANNELS. Default: as published."
        ),
    ] = None,
    width: Annotated[
        float, typer.Option(help="Width multiplier: scales every layer's channels.", rich_help_panel=EXPERT)
    ] = 1.0,
    threads: Annotated[
        int,
        typer.Option(help="Threads per phone; each needs some memory.", min=1, max=MAX_THREADS, rich_help_panel=EXPERT),
    ] = 4,
    activations: Annotated[Activations, typer.Option(help="Storage format for activations.")] = "fp32",
    backend: Annotated[
        PlannedBackend,
        typer.Option(
            help="Compute backend; memory needs differ. hybrid: CPU and GPU together.", rich_help_panel=EXPERT
        ),
    ] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Show a model's layers and size, and the memory a training step needs."""
    from orchestrator.view.console import print_json
    from orchestrator.view.models import print_sheet, sheet_document
    from orchestrator.view.progress import working
    from phone_agent.api import models
    from phone_agent.api.memory import Options, options_on
    from phone_agent.api.models import make_report
    from phone_agent.contract.sizes import parse_bytes

    with agent_errors(), working(f"planning the memory of {name}"):
        shape = models.image_shape(name, image)
        graph = models.build(name, classes, shape, width)
        options = options_on(backend, graph, Options(threads=threads, half=activations == "fp16"))
        sheet = make_report(name, graph, batch, parse_bytes(memory), options, backend=backend)
    if as_json:
        print_json(sheet_document(sheet))
    else:
        print_sheet(sheet)
