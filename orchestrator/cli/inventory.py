"""`clusterctl inventory`: is the file right, what does it describe, in which order do the ranks go."""

from __future__ import annotations

import typer

from orchestrator.cli.options import InventoryOption, LimitOption

app = typer.Typer(help="The rack: check it, look at it, list it for MPI.", no_args_is_help=True)


@app.command()
def hostfile(inventory: InventoryOption = None, limit: LimitOption = None) -> None:
    """Print Open MPI's hostfile."""
    from orchestrator.cli.session import open_session
    from orchestrator.inventory import hostfile as hostfile_of
    from orchestrator.view.console import out

    out.out(hostfile_of(open_session(inventory, limit).phones), end="")


@app.command()
def check(inventory: InventoryOption = None) -> None:
    """Tell everything that is wrong with the inventory."""
    from orchestrator.cli.session import find_inventory
    from orchestrator.inventory import load

    load(find_inventory(inventory))
