"""What a running lab looks like."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.lab.client import read_spec, request
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder

_BOOT_PATIENCE_S = 60.0  # an emulated sshd takes ten times as long


def await_sshd(lab_dir: Path, names: Iterable[str]) -> list[str]:
    """Waits until the sshd of these phones listen; returns the phones whose does not."""
    deadline = time.monotonic() + _BOOT_PATIENCE_S
    waiting = list(names)
    while True:
        listening = {row["name"] for row in request(lab_dir, {"op": "status"})[0]["phones"] if row["sshd"]}
        waiting = [name for name in waiting if name not in listening]
        if not waiting or time.monotonic() > deadline:
            return waiting
        time.sleep(0.05)


def look(lab_dir: Path) -> dict[str, Any]:
    """One JSON-able document: the lab, and each phone with what it does now."""
    spec = read_spec(lab_dir)
    now = {row["name"]: row for row in request(lab_dir, {"op": "status"})[0]["phones"]}
    return {
        "mode": spec.mode,
        "arch": spec.shape.arch,
        "switches": spec.shape.switches,
        "rate": spec.shape.rate,
        "uplink": spec.shape.uplink,
        "disk": spec.shape.disk,
        "host": spec.host_address,
        "anchor": holder(LabLayout(lab_dir).anchor_lock),
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
