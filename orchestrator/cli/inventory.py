"""`clusterctl inventory`: is the file right, what does it describe, in which order do the ranks go."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_USAGE, InventoryError

app = typer.Typer(help="The rack: check it, look at it, list it for MPI.", no_args_is_help=True)


class Order(StrEnum):
    RING = "ring"
    INTERLEAVED = "interleaved"


@app.command()
def check(inventory: InventoryOption = None, limit: LimitOption = None, json: JsonOption = False) -> None:
    """Tell everything that is wrong with the inventory, or what it describes."""
    from orchestrator.cli.session import find_inventory, open_session
    from orchestrator.view import inventory as view

    source = find_inventory(inventory)
    try:
        session = open_session(source, limit)
    except InventoryError as error:
        view.print_problems(error, json=json)
        raise typer.Exit(EXIT_USAGE) from error
    view.print_summary(session.cluster, session.phones, json=json)


@app.command()
def show(inventory: InventoryOption = None, limit: LimitOption = None, json: JsonOption = False) -> None:
    """Draw the switches with their phones, uplinks and the ring through them."""
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
    order: Annotated[
        Order, typer.Option(help="interleaved: the order that makes every hop cross an uplink.")
    ] = Order.RING,
) -> None:
    """Print Open MPI's hostfile: one phone a line, in the order of the ranks."""
    from orchestrator.cli.session import open_session
    from orchestrator.inventory.ring import hostfile as lines
    from orchestrator.inventory.ring import interleaved

    phones = open_session(inventory, limit).phones
    typer.echo(lines(interleaved(phones) if order is Order.INTERLEAVED else phones), nl=False)
