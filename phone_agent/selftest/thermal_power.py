"""Heat, power and time."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from phone_agent.contract.assumptions import Found, failed, judged, ok, unknown
from phone_agent.contract.files import read_int, read_text
from phone_agent.device import battery, commands, thermal, timers
from phone_agent.device.roots import REAL, Roots

NAPS, NAP_S = 20, 0.05
LATE = 1.3
FEEDING = {"CHARGING", "FULL", "NOT_CHARGING"}  # the last: plugged in, and full enough or too warm to charge
WAKE_LOCK_S = 15.0


def thermal_zones(roots: Roots = REAL) -> Found:
    folders = sorted((roots.sys / "class" / "thermal").glob("thermal_zone*"))
    zones = {read_text(folder / "type") or folder.name: read_int(folder / "temp") for folder in folders}
    readable = [name for name, raw in zones.items() if raw is not None]
    chosen = thermal.from_zones(roots)
    if chosen is None:
        return failed(f"{len(readable)} of {len(zones)} thermal zones can be read, none of the processor", zones=zones)
    told = f"{len(readable)} of {len(zones)} thermal zones can be read; the processor has {chosen.celsius:g} °C"
    return ok(f"{told} ({chosen.source})", zones=zones)


def thermal_service(roots: Roots = REAL) -> Found:
    said = commands.output([str(roots.android / "dumpsys"), "thermalservice"], timeout=5)
    reading = thermal.from_service(roots)
    if reading is None:
        return failed("dumpsys thermalservice tells no temperature", said=(said or "nothing").splitlines()[:5])
    return ok(f"{reading.source} has {reading.celsius:g} °C")


def temperature(roots: Roots = REAL) -> Found:
    found = thermal.read_temperature(battery.read_battery, roots)
    if found is None:
        return failed("no thermometer can be read: heat shows in frequency and step time only")
    return ok(f"{found.celsius:g} °C by {found.source}")


def battery_answers() -> Found:
    started = time.monotonic()
    answer = _ask_battery()
    seconds = time.monotonic() - started
    if answer is None:
        return failed(f"termux-battery-status gave no answer in {seconds:.1f} s: is Termux:API installed and opened?")
    return ok(f"termux-battery-status answers in {seconds:.1f} s", keys=sorted(answer), seconds=round(seconds, 2))


def _ask_battery() -> battery.Battery | None:
    """Afresh: elsewhere an answer counts for a while."""
    with tempfile.TemporaryDirectory() as folder:
        return battery.read_battery(Path(folder) / "none")


def charging() -> Found:
    answer = _ask_battery()
    if answer is None:
        return unknown("termux-battery-status gave no answer")
    told = {name: answer.get(name) for name in ("plugged", "status", "current", "percentage", "temperature")}
    fed = told["plugged"] not in {None, "UNPLUGGED"} and told["status"] in FEEDING
    return judged(fed, f"{told['plugged']}, {told['status']}, {told['percentage']} %, {told['current']} µA", **told)


def wake_lock() -> Found:
    started = time.monotonic()
    done = commands.output(["termux-wake-lock"], timeout=WAKE_LOCK_S) is not None
    seconds = time.monotonic() - started
    if not done:
        return failed(f"termux-wake-lock is missing, failed or hung ({seconds:.1f} s)")
    return ok(f"termux-wake-lock is done in {seconds:.1f} s; the lock is held now")


def sleeping() -> Found:
    """Android stretches the naps of what it holds back, and everything of ours that waits naps."""
    slack = timers.be_precise()
    taken = []
    for _ in range(NAPS):
        started = time.monotonic()
        time.sleep(NAP_S)
        taken.append(time.monotonic() - started)
    usual = median(taken) / NAP_S
    told = f"a nap of {NAP_S * 1e3:.0f} ms takes {usual:.2f} times as long, at worst {max(taken) / NAP_S:.2f} times"
    return judged(usual <= LATE, told, median_ms=round(median(taken) * 1e3, 2), worst_ms=round(max(taken) * 1e3, 2),
                  timer_slack_ns=slack)  # fmt: skip
