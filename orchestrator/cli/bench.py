"""`clusterctl bench`: measure what the rack can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED

if TYPE_CHECKING:
    from orchestrator.runs.allreduce import AllreduceResult

app = typer.Typer(help="Measure what the rack can do.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure what the rack can do."""


@app.command()
def allreduce(
    mb: Annotated[
        float, typer.Option(help="Size of the summed buffer; ResNet-50's gradients are 97.7.", min=0.001, max=2000)
    ] = 97.7,
    algorithm: Annotated[str, typer.Option(help="ring (ours) or mpi (MPI_Allreduce).")] = "ring",
    wire: Annotated[str, typer.Option(help="How numbers travel: fp32.")] = "fp32",
    order: Annotated[
        str, typer.Option(help="ring follows the switches; interleaved shows what that is worth.")
    ] = "ring",
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 5,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time one allreduce over the phones, against the speed of their links."""
    from orchestrator.cli.session import open_session
    from orchestrator.runs.allreduce import AllreduceRequest, bench_allreduce
    from orchestrator.runs.health import ask_all
    from orchestrator.runs.preflight import UnfitPhonesError, inspect
    from orchestrator.view.allreduce import as_document, print_allreduce
    from orchestrator.view.console import print_json

    request = AllreduceRequest(mb, algorithm, wire, order, repeats)
    request.check()
    session = open_session(inventory, limit)
    with session.fleet() as fleet:
        preflight = inspect(ask_all(fleet))
        if preflight.unfit:
            raise UnfitPhonesError(preflight, "bench allreduce")
        result = bench_allreduce(session.cluster, session.phones, fleet.connection(session.phones[0]), request)
    if as_json:
        print_json(as_document(result))
    else:
        print_allreduce(result)
    _exit_by(result)


def _exit_by(result: AllreduceResult) -> None:
    if not result.correct:
        raise typer.Exit(EXIT_FAILED)
