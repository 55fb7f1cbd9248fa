"""`clusterctl selftest`: the first hour with a phone, as one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.completion import complete_limit
from orchestrator.cli.options import InventoryOption, JsonOption
from orchestrator.errors import EXIT_FAILED, UsageError

PhonesArgument = Annotated[
    list[str],
    typer.Argument(help="Which phones, written as for --limit; two or more are also tried together.",
                   autocompletion=complete_limit),
]  # fmt: skip
InteractiveOption = Annotated[
    bool, typer.Option("--interactive", help="Also ask you to switch screens off, and look again.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Where the files go, one a phone.", file_okay=False)]
IdsOption = Annotated[bool, typer.Option("--show-ids", help="Leave MAC addresses and serial numbers in the files.")]


def selftest(
    phones: PhonesArgument,
    interactive: InteractiveOption = False,
    out: OutOption = Path(),
    show_ids: IdsOption = False,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check on real phones what we only believe of them; writes a file for each that you can send us."""
    import time

    from orchestrator.cli.session import open_session
    from orchestrator.selftest.document import document, write
    from orchestrator.selftest.run import Site
    from orchestrator.selftest.run import selftest as examine
    from orchestrator.view.console import print_json
    from orchestrator.view.selftest import checklist, print_reports

    if interactive and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("--interactive asks questions, and there is no terminal", remedy="leave it out")
    session = open_session(inventory, ",".join(phones))
    out.mkdir(parents=True, exist_ok=True)  # before any phone is asked
    with session.fleet() as fleet, checklist(session.phones) as view:
        site = Site(session.cluster, fleet, session.network)
        reports = examine(site, view.show, view.ask if interactive else None)
    made = time.time()
    files = [write(report, out, made, show_ids=show_ids) for report in reports]
    if as_json:
        print_json([{**document(report, made, show_ids=show_ids), "file": str(file)}
                    for report, file in zip(reports, files, strict=True)])  # fmt: skip
    else:
        print_reports(reports, files)
    if not all(report.ok for report in reports):
        raise typer.Exit(EXIT_FAILED)
