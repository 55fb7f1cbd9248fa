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
        help="Inventory file. Default: the running lab's, or ./inventory.yaml if no lab is running.",
        show_default=False,
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
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
