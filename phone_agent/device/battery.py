"""The battery, by Termux:API. The call hangs for ever when its app is missing or frozen: it is bounded and cached."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.files import read_json, write_json
from phone_agent.device import commands

COMMAND = "termux-battery-status"
TIMEOUT_S = 6.0  # telemetry as a whole answers within 8 s
FRESH_S = 20.0
UNKNOWN_S = 300.0  # a call that hung is not tried again at once

Battery = dict[str, Any]


def read_battery(cache: Path | None = None) -> Battery | None:
    cache = cache or layout.local(layout.ROOT / "battery.json")
    known = _cached(cache)
    if known is not None:
        battery: Battery | None = known["battery"]
        return battery
    battery = _ask()
    _remember(cache, battery)
    return battery


def _ask() -> Battery | None:
    try:
        answer = json.loads(commands.output([COMMAND], timeout=TIMEOUT_S) or "")
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _cached(cache: Path) -> dict[str, Any] | None:
    entry = read_json(cache)
    if not isinstance(entry, dict) or not {"battery", "epoch"} <= entry.keys():
        return None
    age = time.time() - entry["epoch"]
    return entry if 0 <= age < (FRESH_S if entry["battery"] else UNKNOWN_S) else None


def _remember(cache: Path, battery: Battery | None) -> None:
    try:
        write_json(cache, {"epoch": time.time(), "battery": battery})
    except OSError:
        return  # a full disk must not hide the rest of the telemetry
