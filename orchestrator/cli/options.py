"""The flags that several commands share, declared once."""

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
        help="Inventory file. Default: the running lab's, else ./inventory.yaml.",
        show_default=False,
    ),
]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--limit",
        help="Which phones: names, sw1, sw1:1-8, @failed; combine with ',', '&' (and), '!' (not).",
        autocompletion=complete_limit,
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else there.")]
