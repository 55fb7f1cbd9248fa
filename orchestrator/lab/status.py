"""What a running lab looks like."""

from __future__ import annotations

from typing import Any

from orchestrator.lab.client import read_spec, request
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.lock import holder
from orchestrator.paths import lab_dir, lab_inventory


def look() -> dict[str, Any]:
    """One JSON-able document: the lab, and each phone with what it does now."""
    root = lab_dir()
    spec = read_spec(root)
    now = {row["name"]: row for row in request(root, {"op": "status"})[0]["phones"]}
    return {
        "mode": spec.mode,
        "switches": spec.shape.switches,
        "rate": spec.shape.rate,
        "uplink": spec.shape.uplink,
        "disk": spec.shape.disk,
        "host": spec.host_address,
        "anchor": holder(LabLayout(root).anchor_lock),
        "inventory": str(lab_inventory()),
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
