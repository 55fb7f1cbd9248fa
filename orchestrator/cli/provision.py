"""`clusterctl provision`: from bare Termux to worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from orchestrator.provision.report import Report

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Tell what would change; touch no phone.")]
UpstreamOption = Annotated[
    str | None,
    typer.Option("--upstream", help="Termux package repository. Default: Termux's own, or the lab's.", metavar="URL"),
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Use the last package snapshot; ask no repository.")]


def provision(
    dry_run: DryRunOption = False,
    upstream: UpstreamOption = None,
    offline: OfflineOption = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set phones up: packages, keys, sshd, Open MPI, mpi4py, the agent. A second run changes nothing."""
    from orchestrator.cli.session import open_session
    from orchestrator.provision import Options, ProvisionInterrupted, provision
    from orchestrator.view.provision import provision_progress

    session = open_session(inventory, limit)
    try:
        with provision_progress() as on_event:
            report = provision(session, Options(upstream, offline, dry_run), on_event)
    except ProvisionInterrupted as interrupted:
        _show(interrupted.report, as_json)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _show(report, as_json)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _show(report: Report, as_json: bool) -> None:
    from orchestrator.view.console import print_json
    from orchestrator.view.provision import print_report

    if as_json:
        print_json(report.as_json())
    else:
        print_report(report, "clusterctl provision --limit @failed")
