"""Run commands inside a lab: on a phone, or on the host side of the lab network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab.client import read_spec, request
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder
from orchestrator.lab.programs import find_program
from orchestrator.lab.spec import Mode


def exec_on_phone(lab_dir: Path, phone: str, command: Sequence[str], stdio: Sequence[int] = (0, 1, 2)) -> int:
    """Run a command as the phone's user in the Termux environment. Return its exit code."""
    read_spec(lab_dir).phone(phone)
    reply, _ = request(lab_dir, {"op": "exec", "phone": phone, "argv": list(command)}, stdio)
    return int(reply["exit"])


def enter(lab_dir: Path, command: Sequence[str]) -> NoReturn:
    """Replace this process with a command that runs in the lab's network namespace."""
    argv = [*nsenter_command(lab_dir), *command]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 (no shell is the point)
    except FileNotFoundError:
        raise UsageError(f"{argv[0]}: no such program", remedy="make setup") from None


def nsenter_command(lab_dir: Path) -> list[str]:
    """The command prefix that runs a command in the lab's network namespace. Empty in loopback mode."""
    mode, daemon = read_spec(lab_dir).mode, holder(LabLayout(lab_dir).daemon_lock)
    if mode is Mode.LOOPBACK:
        return []
    if daemon is None:
        raise ClusterctlError("no lab is running", remedy="clusterctl lab up --phones 4")
    as_user = ["--user", "--preserve-credentials"] if mode is Mode.USER else []
    return [find_program("nsenter") or "nsenter", f"--target={daemon}", "--net", *as_user, "--"]
