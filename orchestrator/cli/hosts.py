"""`clusterctl hosts`: the host keys this computer has pinned, one a phone."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.completion import complete_limit
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption

app = typer.Typer(help="Pinned host keys, and this computer's own key.", no_args_is_help=True)

PhonesArgument = Annotated[
    str, typer.Argument(help="Which phones, written as for --limit.", autocompletion=complete_limit)
]


@app.command("list")
def list_keys(inventory: InventoryOption = None, limit: LimitOption = None, json: JsonOption = False) -> None:
    """Show each phone's pinned host key."""
    from orchestrator.cli.session import open_session
    from orchestrator.fleet.host_keys import HostKeys
    from orchestrator.view import hosts as view

    session = open_session(inventory, limit)
    view.print_pinned_keys(session.phones, HostKeys(session.state.known_hosts), json=json)


@app.command()
def forget(phones: PhonesArgument, inventory: InventoryOption = None, json: JsonOption = False) -> None:
    """Unpin phones that were set up again; their new keys are taken by the next provision."""
    from orchestrator.cli.session import open_session
    from orchestrator.fleet.host_keys import HostKeys
    from orchestrator.view import hosts as view

    session = open_session(inventory, phones)
    view.print_forgotten(HostKeys(session.state.known_hosts).forget(session.phones), json=json)
    view.print_keys_in_inventory([phone for phone in session.phones if phone.host_key])


@app.command()
def key(inventory: InventoryOption = None, json: JsonOption = False) -> None:
    """Print the key this computer logs in with; it belongs into ~/.ssh/authorized_keys on each phone."""
    from orchestrator.cli.session import open_session
    from orchestrator.provision.gather_desired import host_key
    from orchestrator.view import hosts as view

    session = open_session(inventory)
    view.print_key(host_key(session.cluster, session.state), json=json)
