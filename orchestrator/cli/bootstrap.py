"""`clusterctl bootstrap`: install Termux, sshd and this computer's key on phones connected by USB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import EXPERT, examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.cli.provision import OfflineOption, UpstreamOption
from orchestrator.errors import EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from ipaddress import IPv4Address

    from orchestrator.bootstrap.report import BootstrapReport

ApksOption = Annotated[
    Path,
    typer.Option("--apks", help="Directory with the Termux, Termux:API and Termux:Boot APKs and a SHA256SUMS file."),
]
SerialOption = Annotated[
    list[str] | None,
    typer.Option("--serial", help="Only the phone with this serial number, as in `adb devices`. Repeatable."),
]
AssignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assign",
        help="Map the phone with this serial number to an inventory entry: SERIAL=sw1:7 or SERIAL=p1-07. Repeatable.",
        metavar="SERIAL=PHONE",
    ),
]
FreeOption = Annotated[
    bool, typer.Option("--assign-free", help="Assign unknown phones to the inventory's free ports, in order.")
]
WaitOption = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for a manual action, such as a tap on the phone.", min=0)
]
NtpOption = Annotated[
    str | None,
    typer.Option(
        "--ntp", help="Time server for the phones. Default: network.host in the inventory.", rich_help_panel=EXPERT
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the adb commands; change nothing.")]


@examples(
    "clusterctl bootstrap --apks ~/apks --dry-run",
    "clusterctl bootstrap --apks ~/apks --assign R58M123ABCD=sw1:7",
    "clusterctl bootstrap --apks ~/apks --assign-free",
)
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
    """Install Termux and sshd on phones connected by USB.

    Also applies the Android settings that training needs and installs this computer's key. Run the command again to
    continue after an interruption: completed steps are skipped.
    """
    from orchestrator.bootstrap.bootstrapper import BootstrapInterrupted, BootstrapOptions, bootstrap
    from orchestrator.cli.session import open_session
    from orchestrator.view.bootstrap import bootstrap_progress

    session = open_session(inventory, limit)
    options = BootstrapOptions(
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


def _show(report: BootstrapReport, as_json: bool) -> None:
    from orchestrator.view.bootstrap import print_report
    from orchestrator.view.console import print_json

    if as_json:
        print_json(report.as_json())
    else:
        print_report(report)
