"""What is remembered from one examination to the next: who kept sshd running, how full the battery was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.health.doctor_facts import Facts
from orchestrator.health.observation import Earlier
from orchestrator.inventory.model import Phone


def recall(path: Path) -> dict[str, Earlier]:
    """By phone. A memory that cannot be read is none."""
    try:
        raw = json.loads(path.read_bytes())
        return {str(name): _earlier(entry) for name, entry in raw.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def remember(path: Path, facts: Mapping[Phone, Facts], now: float) -> None:
    """Phones that did not answer keep what was known of them."""
    known = recall(path)
    known.update({phone.name: _told(each, now) for phone, each in facts.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps({name: asdict(each) for name, each in known.items()}) + "\n", encoding="utf-8")
    part.replace(path)


def _told(facts: Facts, now: float) -> Earlier:
    percentage, plugged = facts.battery.get("percentage"), facts.battery.get("plugged")
    return Earlier(
        when=now,
        keeper=facts.keeper,
        percentage=float(percentage) if isinstance(percentage, int | float) else None,
        plugged=plugged != "UNPLUGGED" if isinstance(plugged, str) else None,
    )


def _earlier(entry: Mapping[str, Any]) -> Earlier:
    return Earlier(float(entry["when"]), entry.get("keeper"), entry.get("percentage"), entry.get("plugged"))
