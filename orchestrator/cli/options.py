"""Flags that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.completion import complete_limit

InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--inventory",
        envvar="CLUSTERCTL_INVENTORY",
        help="Inventory file. Default: that of the running lab, else ./inventory.yaml.",
        show_default=False,
    ),
]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--limit",
        help="Only these phones: names, sw1, sw1:1-8, @failed. Combine with ',' (or), '&' (and), '!' (not).",
        autocompletion=complete_limit,
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
