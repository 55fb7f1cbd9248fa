"""`clusterctl provision`: turn phones with bare Termux into workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import EXPERT, examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from orchestrator.provision.report import ProvisionReport

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]
UpstreamOption = Annotated[
    str | None,
    typer.Option(
        "--upstream",
        help="Termux package repository. Default: the official one, or the lab's own in a lab.",
        metavar="URL",
        rich_help_panel=EXPERT,
    ),
]
OfflineOption = Annotated[
    bool,
    typer.Option(
        "--offline", help="Use the last package snapshot; do not contact a repository.", rich_help_panel=EXPERT
    ),
]


@examples(
    "clusterctl provision --dry-run",
    "clusterctl provision",
    "# after fixing the cause, only the phones that failed",
    "clusterctl provision --limit @failed",
)
def provision(
    dry_run: DryRunOption = False,
    upstream: UpstreamOption = None,
    offline: OfflineOption = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn phones that already run Termux into workers.

    Installs packages, keys, sshd, Open MPI, mpi4py and the agent. Safe to run again.
    """
    from orchestrator.cli.session import open_session
    from orchestrator.provision import ProvisionInterrupted, ProvisionOptions, provision
    from orchestrator.view.provision import provision_progress

    session = open_session(inventory, limit)
    try:
        with provision_progress() as on_event:
            report = provision(session, ProvisionOptions(upstream, offline, dry_run), on_event)
    except ProvisionInterrupted as interrupted:
        _show(interrupted.report, as_json)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _show(report, as_json)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _show(report: ProvisionReport, as_json: bool) -> None:
    from orchestrator.view.console import print_json
    from orchestrator.view.provision import print_report

    if as_json:
        print_json(report.as_json())
    else:
        print_report(report, "clusterctl provision --limit @failed")
