"""What is kept from one examination to the next: what restarts sshd, and the charge of the battery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.health.doctor_facts import DoctorFacts
from orchestrator.health.observation import PreviousFacts
from orchestrator.inventory.model import Phone
from phone_agent.contract.files import write_json


def load_history(path: Path) -> dict[str, PreviousFacts]:
    """By phone; empty if the file cannot be read."""
    try:
        raw = json.loads(path.read_bytes())
        return {str(name): _previous_facts(entry) for name, entry in raw.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def update_history(path: Path, facts: Mapping[Phone, DoctorFacts], now: float) -> None:
    """Phones that did not answer keep their earlier entry."""
    history = load_history(path)
    history.update({phone.name: _summary(each, now) for phone, each in facts.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {name: asdict(each) for name, each in history.items()})


def _summary(facts: DoctorFacts, now: float) -> PreviousFacts:
    battery = facts.battery
    return PreviousFacts(
        when=now,
        sshd_supervisor=facts.sshd_supervisor,
        percentage=battery.percent if battery else None,
        plugged=battery.plugged if battery else None,
    )


def _previous_facts(entry: Mapping[str, Any]) -> PreviousFacts:
    return PreviousFacts(
        float(entry["when"]), entry.get("sshd_supervisor"), entry.get("percentage"), entry.get("plugged")
    )
