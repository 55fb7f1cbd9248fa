"""Status of a running lab."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.lab.client import read_spec, request
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder

_BOOT_TIMEOUT_S = 60.0  # an emulated sshd starts ten times slower


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
