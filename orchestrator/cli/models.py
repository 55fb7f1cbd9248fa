"""`clusterctl models`: the networks there are, and what training them takes."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.agent_errors import engine_errors
from orchestrator.cli.completion import complete_model
from orchestrator.cli.options import JsonOption
from orchestrator.errors import UsageError
from phone_agent.contract.choices import MAX_THREADS

app = typer.Typer(help="The networks there are, and what training them takes.", no_args_is_help=True)

PHONE_MEMORY = "2.8GB"  # what the paper's phones had to spare
PLANNED = ("cpu", "opencl", "hybrid")
MOST_BATCH = 1 << 20


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """List the networks, as they were published."""
    from orchestrator.view.console import print_json
    from orchestrator.view.models import overview_document, print_overviews
    from phone_agent.api.models import all_overviews

    found = all_overviews()
    if as_json:
        print_json([overview_document(one) for one in found])
    else:
        print_overviews(found)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="See clusterctl models list.", autocompletion=complete_model)],
    batch: Annotated[int, typer.Option(help="Images a step.", min=1, max=MOST_BATCH)] = 32,
    memory: Annotated[
        str, typer.Option(help="Of a phone: does the batch fit, and how large may it be?")
    ] = PHONE_MEMORY,
    classes: Annotated[int | None, typer.Option(help="Default: as published.", show_default=False)] = None,
    image: Annotated[
        str | None, typer.Option(help="Pixels a side, or HEIGHTxWIDTH[xCHANNELS].", show_default=False)
    ] = None,
    width: Annotated[float, typer.Option(help="Channels of every layer, times this.")] = 1.0,
    threads: Annotated[int, typer.Option(help="Of a phone; each needs some memory.", min=1, max=MAX_THREADS)] = 4,
    half: Annotated[bool, typer.Option("--half", help="With activations stored in fp16.")] = False,
    backend: Annotated[str, typer.Option(help="cpu, opencl or hybrid: each takes memory of its own.")] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Show a network's layers, its size, and the memory a training step takes."""
    from orchestrator.view.console import print_json
    from orchestrator.view.models import print_sheet, sheet_document
    from phone_agent.api import models
    from phone_agent.api.memory import Options, options_on
    from phone_agent.api.models import make_report
    from phone_agent.contract.sizes import parse_bytes

    if backend not in PLANNED:
        raise UsageError(f"--backend {backend}: memory is planned for {', '.join(PLANNED)}")
    with engine_errors():
        shape = models.image_shape(name, image)
        graph = models.build(name, classes, shape, width)
        options = options_on(backend, graph, Options(threads=threads, half=half))
        sheet = make_report(name, graph, batch, parse_bytes(memory), options, backend=backend)
    if as_json:
        print_json(sheet_document(sheet))
    else:
        print_sheet(sheet)
