"""`clusterctl hosts`: the pinned SSH host key of each phone."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption, complete_limit

app = typer.Typer(help="Manage the phones' pinned SSH host keys.", no_args_is_help=True)

PhonesArgument = Annotated[str, typer.Argument(help="Phones, as in --limit.", autocompletion=complete_limit)]


@app.command("list")
def list_keys(inventory: InventoryOption = None, limit: LimitOption = None, json: JsonOption = False) -> None:
    """List each phone's pinned host key."""
    from orchestrator.cli.session import open_session
    from orchestrator.fleet.host_keys import HostKeys
    from orchestrator.view import hosts as view

    session = open_session(inventory, limit)
    view.print_pinned_keys(session.phones, HostKeys(session.state.known_hosts), json=json)


@app.command()
def forget(phones: PhonesArgument, inventory: InventoryOption = None, json: JsonOption = False) -> None:
    """Remove the pinned keys of phones that were reinstalled; the next provision pins their new keys."""
    from orchestrator.cli.session import open_session
    from orchestrator.fleet.host_keys import HostKeys
    from orchestrator.view import hosts as view

    session = open_session(inventory, phones)
    view.print_forgotten(HostKeys(session.state.known_hosts).forget(session.phones), json=json)
    view.print_keys_in_inventory([phone for phone in session.phones if phone.host_key])


@app.command()
def key(inventory: InventoryOption = None, json: JsonOption = False) -> None:
    """Print the public key that this computer logs in with, for ~/.ssh/authorized_keys on the phones."""
    from orchestrator.cli.session import open_session
    from orchestrator.provision.ssh_keys import login_public_key
    from orchestrator.view import hosts as view

    session = open_session(inventory)
    view.print_key(login_public_key(session.cluster, session.state), json=json)
