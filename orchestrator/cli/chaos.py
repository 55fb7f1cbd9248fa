"""`clusterctl chaos`: inject faults into the phones of a lab while they train, and check that runs survive."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.choices import Fault
from orchestrator.cli.help import EXPERT, examples
from orchestrator.cli.options import InventoryOption, JsonOption
from orchestrator.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from orchestrator.chaos.journal import Journal
    from orchestrator.chaos.report import CampaignReport
    from orchestrator.chaos.testbed import Testbed

MIN_PHONES, MAX_PHONES = 4, 16


def _phones(text: str) -> range:
    """Parse '4..8' or '4'."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()):
        raise typer.BadParameter(f"'{text}' is neither a number of phones (4) nor a range (4..8)")
    found = range(int(low), int(high or low) + 1)
    if not found or found[0] < MIN_PHONES or found[-1] > MAX_PHONES:
        raise typer.BadParameter(f"'{text}': chaos needs {MIN_PHONES} to {MAX_PHONES} phones")
    return found


@examples(
    "clusterctl chaos",
    "clusterctl chaos --faults 100 --minutes 240 --journal chaos.json",
    'clusterctl chaos --only "rank killed" --only "cable out" --phones 4 --seed 7',
)
def chaos(
    faults: Annotated[int, typer.Option(help="Number of faults to inject.", min=1, max=100_000)] = 20,
    seed: Annotated[
        int, typer.Option(help="Random seed: the same seed gives the same faults.", min=0, max=2**31 - 1)
    ] = 1,
    minutes: Annotated[float, typer.Option(help="Start no new run after this many minutes.", min=0.1)] = 60.0,
    phones: Annotated[
        range, typer.Option(help="Phones per run: a number or a range.", parser=_phones, metavar="N|N..M")
    ] = "4..8",  # type: ignore[assignment]  # parsed by the above
    only: Annotated[
        list[Fault] | None,
        typer.Option(
            help="Only this kind of fault. Repeatable. head: the phone that runs mpirun; host: this computer; phantom "
            "reaper: Android kills processes beyond its limit. Details: docs/design/chaos.md."
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="Record each run in this file. If the file exists, continue from it.",
            dir_okay=False,
            rich_help_panel=EXPERT,
        ),
    ] = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start training runs in a lab and inject random faults into them.

    Checks that no run hangs, fails or loses a step, that results are correct, and that the reported cause names the
    right phone. Never touches real phones.
    """
    from orchestrator.chaos.campaign import Campaign
    from orchestrator.chaos.driver import Driver
    from orchestrator.chaos.report import CampaignReport
    from orchestrator.view.chaos import print_injection
    from orchestrator.view.console import note

    report, kinds = CampaignReport(seed), _kinds(only)
    parameters = {"seed": seed, "faults": faults, "phones": [*phones], "only": [*kinds]}
    campaign = Campaign(report, faults, minutes, phones, note, kinds, _journal(journal, parameters))
    campaign.load_journal()
    try:
        with _sigterm_as_interrupt(), _open_testbed(inventory, phones) as testbed:
            campaign.run(Driver(testbed, seed, print_injection))
    except KeyboardInterrupt:
        report.interrupted = True
        raise
    finally:
        _print(report, as_json)
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Clean up on SIGTERM as on Ctrl-C; otherwise the temporary lab would stay up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(report: CampaignReport, as_json: bool) -> None:
    """Also after an interrupt."""
    from orchestrator.view.chaos import print_report
    from orchestrator.view.console import out, print_json

    if not report.runs and not report.failed_starts:
        return
    if as_json:
        print_json(report.as_json())
    else:
        print_report(out, report)


def _journal(path: Path | None, parameters: Mapping[str, Any]) -> Journal | None:
    from orchestrator.chaos.journal import Journal

    return Journal(path, parameters) if path else None


def _kinds(only: list[Fault] | None) -> tuple[str, ...]:
    from orchestrator.chaos.plan import KINDS

    return tuple(fault.value for fault in only) if only else KINDS


def _open_testbed(inventory: Path | None, phones: range) -> AbstractContextManager[Testbed]:
    """The running lab; without one, a temporary lab."""
    from orchestrator.chaos.testbed import running_lab, temporary_lab
    from orchestrator.inventory import load
    from orchestrator.paths import lab_inventory, state_dir
    from orchestrator.view.console import note

    if inventory is not None and load(inventory).lab is None:
        raise UsageError(
            f"{inventory} describes real phones; chaos damages phones and runs on labs only",
            remedy="run clusterctl chaos without -i and CLUSTERCTL_INVENTORY",
        )
    if lab_inventory().exists():
        return running_lab(state_dir(), phones)
    note(f"no lab is running: starting a temporary one with {phones[-1]} phones")
    return temporary_lab(phones)
