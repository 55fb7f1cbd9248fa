"""Running commands inside a lab: on a phone, or where the host is plugged in."""

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


def run(lab_dir: Path, phone: str, command: Sequence[str], stdio: Sequence[int] = (0, 1, 2)) -> int:
    """Runs a command as the phone's user in Termux's environment, and returns its exit code."""
    read_spec(lab_dir).phone(phone)
    reply, _ = request(lab_dir, {"op": "exec", "phone": phone, "argv": list(command)}, stdio)
    return int(reply["exit"])


def enter(lab_dir: Path, command: Sequence[str]) -> NoReturn:
    """Replaces this process by a command that sees the lab's network instead of this computer's."""
    argv = [*entering(lab_dir), *command]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 (no shell is the point)
    except FileNotFoundError:
        raise UsageError(f"{argv[0]}: no such program", remedy="make setup") from None


def entering(lab_dir: Path) -> list[str]:
    """What goes before a command that is to see the lab's network."""
    mode, anchor = read_spec(lab_dir).mode, holder(LabLayout(lab_dir).anchor_lock)
    if mode is Mode.LOOPBACK:
        return []
    if anchor is None:
        raise ClusterctlError("the lab ended", remedy="clusterctl lab up --phones 4")
    as_user = ["--user", "--preserve-credentials"] if mode is Mode.USER else []
    return [find_program("nsenter") or "nsenter", f"--target={anchor}", "--net", *as_user, "--"]
