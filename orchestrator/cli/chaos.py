"""`clusterctl chaos`: break a lab's phones while they train, and see whether the runs survive it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import InventoryOption, JsonOption
from orchestrator.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from orchestrator.chaos.journal import Journal
    from orchestrator.chaos.report import Report
    from orchestrator.chaos.testbed import Ground

FEWEST, MOST = 4, 16


def _phones(text: str) -> range:
    """'4..8', or '4'."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()):
        raise typer.BadParameter(f"'{text}' is neither a number of phones (4) nor a range (4..8)")
    found = range(int(low), int(high or low) + 1)
    if not found or found[0] < FEWEST or found[-1] > MOST:
        raise typer.BadParameter(f"'{text}': runs on {FEWEST} to {MOST} phones are disturbed")
    return found


def chaos(
    faults: Annotated[int, typer.Option(help="How many.", min=1, max=100_000)] = 20,
    seed: Annotated[int, typer.Option(help="Decides which faults, when and where.", min=0, max=2**31 - 1)] = 1,
    minutes: Annotated[float, typer.Option(help="Begin no further run after so long.", min=0.1)] = 60.0,
    phones: Annotated[
        range, typer.Option(help="How many phones runs have: a number, or a range.", parser=_phones, metavar="N|N..M")
    ] = "4..8",  # type: ignore[assignment]  # parsed by the above
    only: Annotated[list[str] | None, typer.Option(help="Only faults of this kind; may be repeated.")] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="Write each run down there; go on from what is there.", dir_okay=False, show_default=False),
    ] = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Break phones of a lab at random while they train; see that no run hangs, errs, loses a step or a name."""
    from orchestrator.chaos.campaign import Rage
    from orchestrator.chaos.report import Report
    from orchestrator.view.chaos import print_fault
    from orchestrator.view.console import note

    report, kinds = Report(seed), _kinds(only)
    plan = {"seed": seed, "faults": faults, "phones": [*phones], "only": [*kinds]}
    rage = Rage(report, faults, minutes, phones, print_fault, note, kinds, _journal(journal, plan))
    rage.take_up()
    try:
        with _terminated_as_interrupted(), _ground(inventory, phones) as ground:
            rage.over(ground)
    except KeyboardInterrupt:
        report.interrupted = True
        raise
    finally:
        _tell(report, as_json)
    if not report.kept:
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Its lab would stay up for ever: SIGTERM is Ctrl-C, and what was broken is mended."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(report: Report, as_json: bool) -> None:
    """Also of what was done until somebody interrupted it."""
    from orchestrator.view.chaos import print_report
    from orchestrator.view.console import out, print_json

    if not report.runs and not report.not_carried_out:
        return
    if as_json:
        print_json(report.as_json())
    else:
        print_report(out, report)


def _journal(path: Path | None, plan: Mapping[str, Any]) -> Journal | None:
    from orchestrator.chaos.journal import Journal

    return Journal(path, plan) if path else None


def _kinds(only: list[str] | None) -> tuple[str, ...]:
    from orchestrator.chaos.plan import KINDS

    for kind in only or ():
        if kind not in KINDS:
            raise UsageError(f"--only {kind}: there is no such fault", remedy=f"one of: {', '.join(KINDS)}")
    return tuple(only or KINDS)


def _ground(inventory: Path | None, phones: range) -> AbstractContextManager[Ground]:
    """The lab that is up; without one, a lab for the occasion."""
    from orchestrator.chaos.testbed import lab_of_its_own, lab_that_is_up
    from orchestrator.inventory import load
    from orchestrator.paths import lab_inventory, state_dir
    from orchestrator.view.console import note

    if inventory is not None and load(inventory).lab is None:
        raise UsageError(
            f"{inventory} describes real phones, and chaos breaks phones: it is for labs only",
            remedy="clusterctl chaos without -i and CLUSTERCTL_INVENTORY",
        )
    if lab_inventory().exists():
        return lab_that_is_up(state_dir(), phones)
    note(f"no lab is up: bringing up {phones[-1]} phones for the occasion")
    return lab_of_its_own(phones)
