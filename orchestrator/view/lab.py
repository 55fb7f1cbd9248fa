"""State of the lab, for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from orchestrator.errors import UsageError
from orchestrator.lab.config import Arch
from orchestrator.lab.lifecycle import LabUpResult
from orchestrator.lab.spec import Mode
from orchestrator.records.record import RunRecord
from orchestrator.text import count_of
from orchestrator.view.console import err, note, out, warn
from orchestrator.view.table import Column, FitTable, print_table

_MEANING = {
    Mode.ROOT: "network namespaces (as root)",
    Mode.USER: "network namespaces (in a user namespace)",
    Mode.LOOPBACK: "plain processes on the loopback interface",
}
_LOST_ON_LOOPBACK = (
    "Links have no speed limit (--rate and --uplink have no effect), link= and disk= cannot be set, "
    "and phones see this computer's files, processes, temperatures and host name."
)


def print_started(outcome: LabUpResult) -> None:
    state = "lab already running" if outcome.already_running else "lab started"
    note(f"{state}: {outcome.spec.config}, {_MEANING[outcome.spec.mode]}")
    if outcome.spec.mode is Mode.LOOPBACK and not outcome.already_running:
        warn(f"running without network namespaces ({'; '.join(outcome.fallback_reasons)}). {_LOST_ON_LOOPBACK}")


def confirm_removal(unfinished: Sequence[RunRecord]) -> bool:
    """Asks whether to remove the lab although runs are unfinished; without a terminal, raises UsageError."""
    runs = ", ".join(f"{each.run_id} is {each.state} at step {each.step} of {each.steps}" for each in unfinished)
    if not (sys.stdin.isatty() and err.is_terminal):
        raise UsageError(
            f"the lab is in use: {runs}",
            remedy=f"clusterctl stop {unfinished[-1].run_id}, or end it with clusterctl lab down --force",
        )
    err.print(f"The lab is in use: {runs}.", markup=False, soft_wrap=True)
    try:
        answer = err.input("[bold]End the run and remove the lab?[/] \\[y/[bold]N[/]] ")
    except (EOFError, KeyboardInterrupt):
        err.print()
        answer = ""
    return answer.strip().lower() in {"y", "yes"}


def print_status(report: dict[str, Any]) -> None:
    kind = "phone" if report["arch"] is Arch.NATIVE else f"{report['arch']} phone"
    running = sum(phone["up"] for phone in report["phones"])
    out.print(f"{running} of {count_of(report['phones'], kind)} on, {_MEANING[report['mode']]}; host {report['host']}")
    if report["mode"] is not Mode.LOOPBACK:
        out.print(f"links {report['rate']}, uplinks {report['uplink']}, disks {report['disk']}")
    print_table(out, render_phones(report["phones"]))


def render_phones(phones: Sequence[dict[str, Any]]) -> FitTable:
    table = FitTable("phone", "port", Column("address", priority=1), Column("user", priority=2), "power", "sshd")
    for phone in phones:
        table.add_row(
            phone["name"],
            f"{phone['switch']}:{phone['port']}",
            phone["address"],
            phone["user"],
            Text("on") if phone["up"] else Text("off", "red"),
            Text("listening") if phone["sshd"] else Text("down", "red"),
        )
    return table
