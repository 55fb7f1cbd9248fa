"""`clusterctl bootstrap`: from phones on a USB hub to Termux with sshd and this computer's key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.cli.provision import OfflineOption, UpstreamOption
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from ipaddress import IPv4Address

    from orchestrator.bootstrap.report import Report

ApksOption = Annotated[
    Path,
    typer.Option("--apks", help="Directory with the APKs of Termux, Termux:API, Termux:Boot, and their SHA256SUMS."),
]
SerialOption = Annotated[
    list[str] | None, typer.Option("--serial", help="Only this phone, as `adb devices` calls it. May be given again.")
]
AssignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assign",
        help="Which phone of the inventory has this serial number: SERIAL=sw1:7 or SERIAL=p1-07. May be given again.",
        metavar="SERIAL=PHONE",
    ),
]
FreeOption = Annotated[
    bool, typer.Option("--assign-free", help="Give phones the inventory does not know its free ports, in order.")
]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait for what a person has to do.", min=0)]
NtpOption = Annotated[
    str | None, typer.Option("--ntp", help="Time server of the phones. Default: network.host of the inventory.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the adb commands; change no phone.")]


def bootstrap(
    apks: ApksOption,
    serial: SerialOption = None,
    assign: AssignOption = None,
    assign_free: FreeOption = False,
    wait: WaitOption = 300.0,
    ntp: NtpOption = None,
    dry_run: DryRunOption = False,
    upstream: UpstreamOption = None,
    offline: OfflineOption = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set up phones on USB: Termux, its settings, sshd and this computer's key. Goes on where it was interrupted."""
    from orchestrator.bootstrap.run import BootstrapInterrupted, Options, bootstrap
    from orchestrator.cli.session import open_session
    from orchestrator.view.bootstrap import bootstrap_progress

    session = open_session(inventory, limit)
    options = Options(
        apks=apks,
        serials=tuple(serial or ()),
        pairs=tuple(assign or ()),
        fill_free=assign_free,
        wait=wait,
        ntp=_address(ntp),
        upstream=upstream,
        offline=offline,
        dry_run=dry_run,
    )
    try:
        with bootstrap_progress() as on_event:
            report = bootstrap(session.cluster, session.phones, session.state, options, on_event)
    except BootstrapInterrupted as interrupted:
        _show(interrupted.report, as_json)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _show(report, as_json)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _address(text: str | None) -> IPv4Address | None:
    from orchestrator.errors import UsageError
    from orchestrator.inventory import grammar

    try:
        return grammar.address(text) if text else None
    except ValueError as error:
        raise UsageError(f"--ntp: {error}") from error


def _show(report: Report, as_json: bool) -> None:
    from orchestrator.view.bootstrap import print_report
    from orchestrator.view.console import print_json

    if as_json:
        print_json(report.as_json())
    else:
        print_report(report)
