"""Battery status from Termux:API. The call hangs if its app is missing or frozen, so it has a timeout and a cache."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.files import read_json, write_json
from phone_agent.device import system

COMMAND = "termux-battery-status"
TIMEOUT_S = 6.0  # all of telemetry must respond within 8 s
FRESH_S = 20.0
UNKNOWN_S = 300.0  # how long a call that hung is not retried

Battery = dict[str, Any]


def read_battery(cache: Path | None = None) -> Battery | None:
    cache = cache or layout.local(layout.ROOT / "battery.json")
    cached = _cached(cache)
    if cached is not None:
        battery: Battery | None = cached["battery"]
        return battery
    battery = _query()
    _store(cache, battery)
    return battery


def _query() -> Battery | None:
    try:
        status = json.loads(system.output([COMMAND], timeout=TIMEOUT_S) or "")
    except ValueError:
        return None
    return status if isinstance(status, dict) else None


def _cached(cache: Path) -> dict[str, Any] | None:
    entry = read_json(cache)
    if not isinstance(entry, dict) or not {"battery", "epoch"} <= entry.keys():
        return None
    age = time.time() - entry["epoch"]
    return entry if 0 <= age < (FRESH_S if entry["battery"] else UNKNOWN_S) else None


def _store(cache: Path, battery: Battery | None) -> None:
    try:
        write_json(cache, {"epoch": time.time(), "battery": battery})
    except OSError:
        return  # a full disk must not hide the rest of the telemetry
