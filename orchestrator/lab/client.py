"""Requests to a running lab: its status, and commands on a phone or on the host side of the lab network."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.lab import ipc
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.programs import find_program
from orchestrator.lab.spec import LabSpec, Mode
from orchestrator.process_lock import holder

_BOOT_TIMEOUT_S = 60.0  # an emulated sshd starts ten times slower


def read_spec(lab_dir: Path) -> LabSpec:
    """The spec of the running lab. Raise UsageError if no lab is running."""
    lab = LabLayout(lab_dir)
    if holder(lab.daemon_lock) is None:
        crashed = " (an earlier lab ended without cleaning up)" if lab_dir.exists() else ""
        raise UsageError(f"no lab is running{crashed}", remedy="clusterctl lab up --phones 4")
    return LabSpec.from_json(lab.spec.read_text())


def request(lab_dir: Path, message: dict[str, Any], files: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
    """Send one request and return the reply. An error reported by the daemon is raised as ClusterctlError."""
    try:
        with ipc.connect(lab_dir) as channel:
            ipc.send(channel, message, files)
            reply, received = ipc.receive(channel)
    except (OSError, EOFError) as error:
        reason = str(error) or "connection closed"
        raise ClusterctlError(f"the lab daemon did not answer ({reason})", remedy="clusterctl lab status") from error
    if failure := reply.get("error"):
        remedy = reply.get("remedy") or f"see the lab daemon's log: {LabLayout(lab_dir).log}"
        raise ClusterctlError(str(failure), remedy=remedy)
    return reply, received


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


def wait_for_sshd(lab_dir: Path, names: Iterable[str]) -> list[str]:
    """Wait until sshd listens on these phones. Return the phones where it still does not."""
    deadline = time.monotonic() + _BOOT_TIMEOUT_S
    waiting = list(names)
    while True:
        listening = {row["name"] for row in request(lab_dir, {"op": "status"})[0]["phones"] if row["sshd"]}
        waiting = [name for name in waiting if name not in listening]
        if not waiting or time.monotonic() > deadline:
            return waiting
        time.sleep(0.05)


def lab_status(lab_dir: Path) -> dict[str, Any]:
    """The lab and the state of each phone, as one JSON-serializable document."""
    spec = read_spec(lab_dir)
    now = {row["name"]: row for row in request(lab_dir, {"op": "status"})[0]["phones"]}
    return {
        "mode": spec.mode,
        "arch": spec.config.arch,
        "switches": spec.config.switches,
        "rate": spec.config.rate,
        "uplink": spec.config.uplink,
        "disk": spec.config.disk,
        "host": spec.host_address,
        "daemon_pid": holder(LabLayout(lab_dir).daemon_lock),
        "inventory": str(lab_dir / "inventory.yaml"),
        "phones": [
            {
                "name": phone.name,
                "switch": f"sw{phone.switch}",
                "port": phone.port,
                "address": phone.address,
                "user": phone.user,
                "up": now[phone.name]["up"],
                "sshd": now[phone.name]["sshd"],
            }
            for phone in spec.phones
        ],
    }
