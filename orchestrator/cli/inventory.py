"""`clusterctl inventory`: check and show the inventory file, and print the rank order."""

from __future__ import annotations

import typer

from orchestrator.cli.help import format_examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption, OrderOption
from orchestrator.errors import EXIT_USAGE, InventoryError

app = typer.Typer(help="Check and show the inventory of switches and phones.", no_args_is_help=True)


@app.command(
    epilog=format_examples("clusterctl inventory check", "clusterctl inventory check -i rack2.yaml --limit sw1")
)
def check(inventory: InventoryOption = None, limit: LimitOption = None, json: JsonOption = False) -> None:
    """Check the inventory file. Prints each problem with its line number, or a summary if there are none."""
    from orchestrator.cli.session import find_inventory, open_session
    from orchestrator.view import inventory as view

    source = find_inventory(inventory)
    try:
        session = open_session(source, limit)
    except InventoryError as error:
        view.print_problems(error, json=json)
        raise typer.Exit(EXIT_USAGE) from error
    view.print_summary(session.cluster, session.phones, json=json)


@app.command(epilog=format_examples("clusterctl inventory show", "clusterctl inventory show --limit sw1:1-8 --json"))
def show(inventory: InventoryOption = None, limit: LimitOption = None, json: JsonOption = False) -> None:
    """Draw the switches with their phones and uplinks, and the allreduce ring that connects them."""
    from orchestrator.cli.session import open_session
    from orchestrator.view.console import out, print_json
    from orchestrator.view.rack_diagram import Racks, as_json

    session = open_session(inventory, limit)
    if json:
        print_json(as_json(session.cluster, frozenset(session.phones)))
    else:
        out.print(Racks(session.cluster, frozenset(session.phones)))


@app.command()
def hostfile(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    order: OrderOption = "ring",
) -> None:
    """Print an Open MPI hostfile: one phone per line, in rank order."""
    from orchestrator.cli.session import open_session
    from orchestrator.inventory.ring_traffic import hostfile as lines
    from orchestrator.inventory.ring_traffic import interleaved

    phones = open_session(inventory, limit).phones
    typer.echo(lines(interleaved(phones) if order == "interleaved" else phones), nl=False)
