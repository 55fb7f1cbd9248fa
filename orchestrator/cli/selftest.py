"""`clusterctl selftest`: check that a new kind of phone behaves as we assume."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, complete_limit
from orchestrator.errors import EXIT_FAILED, UsageError

PhonesArgument = Annotated[
    list[str],
    typer.Argument(
        help="Phones, as in --limit. With two or more, also tests the network between them.",
        autocompletion=complete_limit,
    ),
]
InteractiveOption = Annotated[
    bool, typer.Option("--interactive", help="Also test with screens off; prompts you to turn each one off.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Output directory; one file per phone.", file_okay=False)]
IdsOption = Annotated[bool, typer.Option("--show-ids", help="Keep MAC addresses and serial numbers in the files.")]


@examples("clusterctl selftest p1-01", "clusterctl selftest p1-01 p1-02 --interactive --out results")
def selftest(
    phones: PhonesArgument,
    interactive: InteractiveOption = False,
    out: OutOption = Path(),
    show_ids: IdsOption = False,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test whether phones behave as this software assumes.

    Run this once on each new kind of phone. Writes one report file per phone, safe to share.
    """
    import time

    from orchestrator.cli.session import open_session
    from orchestrator.selftest.document import document, write
    from orchestrator.selftest.run import Site
    from orchestrator.selftest.run import selftest as examine
    from orchestrator.view.console import print_json
    from orchestrator.view.selftest import checklist, print_reports

    if interactive and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("--interactive needs a terminal", remedy="run it without --interactive")
    session = open_session(inventory, ",".join(phones))
    out.mkdir(parents=True, exist_ok=True)  # fails before any phone is contacted
    with session.fleet() as fleet, checklist(session.phones) as view:
        site = Site(session.cluster, fleet, session.network)
        reports = examine(site, view.show, view.prompt if interactive else None)
    made = time.time()
    files = [write(report, out, made, show_ids=show_ids) for report in reports]
    if as_json:
        print_json([{**document(report, made, show_ids=show_ids), "file": str(file)}
                    for report, file in zip(reports, files, strict=True)])  # fmt: skip
    else:
        print_reports(reports, files)
    if not all(report.ok for report in reports):
        raise typer.Exit(EXIT_FAILED)
