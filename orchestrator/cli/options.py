"""Flags that several commands share, and shell completion of phones, models and recipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.choices import RankOrder
from orchestrator.cli.help import EXPERT


def complete_limit(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Completes the last term of a selector; nothing if there is no inventory."""
    from orchestrator.cli.session import find_inventory
    from orchestrator.errors import ClusterctlError
    from orchestrator.inventory import Cluster, load

    def words(cluster: Cluster) -> list[tuple[str, str]]:
        return [
            *((switch.name, f"{len(switch.phones)} phones") for switch in cluster.switches),
            *((phone.name, f"{phone.where} {phone.address}") for phone in cluster),
            ("@all", "every phone"),
            ("@failed", "phones that failed last time"),
        ]

    try:
        given = ctx.params.get("inventory")
        cluster = load(find_inventory(Path(given) if given else None))
    except ClusterctlError:
        return []
    last = re.split("[,&!]", incomplete)[-1]
    done = incomplete.removesuffix(last)
    return [(done + word, meaning) for word, meaning in words(cluster) if word.startswith(last)]


def complete_model(incomplete: str) -> list[tuple[str, str]]:
    from phone_agent.api.models import MODELS

    return [(name, model.description) for name, model in MODELS.items() if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[tuple[str, str]]:
    from orchestrator.launch.recipes import RECIPES

    return [(name, recipe.about) for name, recipe in RECIPES.items() if name.startswith(incomplete)]


InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--inventory",
        envvar="CLUSTERCTL_INVENTORY",
        help="Inventory file. Default: the running lab's, or ./inventory.yaml if no lab is running.",
    ),
]
ClusterOption = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--inventory",
        envvar="CLUSTERCTL_INVENTORY",
        help="Only runs of this inventory's cluster. Default: of all clusters.",
    ),
]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--limit",
        help="Only these phones: a name (p1-01), a switch (sw1), ports (sw1:1-8) or @failed (failed in the last "
        "command). Combine with ',' (or), '&' (and), '!' (not).",
        autocompletion=complete_limit,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
OrderOption = Annotated[
    RankOrder,
    typer.Option(
        help="Rank order. ring: switch by switch; interleaved: every hop crosses an uplink (the worst order).",
        rich_help_panel=EXPERT,
    ),
]
RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Run id or unique prefix. Default: the newest run.", show_default=False),
]
