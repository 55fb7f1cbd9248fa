"""Checks of temperature, battery, wake lock and timers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from phone_agent.contract.assumptions import CheckResult, failed, ok, ok_if, unknown
from phone_agent.contract.files import read_int, read_text
from phone_agent.device import affinity, battery, system, thermal
from phone_agent.device.step_timer import time_steps
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

SLEEPS, SLEEP_S = 20, 0.05
MAX_STRETCH = 1.3
POWERED = {"CHARGING", "FULL", "NOT_CHARGING"}  # NOT_CHARGING: plugged in, but full enough or too warm to charge
WAKE_LOCK_S = 15.0


def thermal_zones(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    folders = sorted((paths.sys / "class" / "thermal").glob("thermal_zone*"))
    zones = {read_text(folder / "type") or folder.name: read_int(folder / "temp") for folder in folders}
    readable = [name for name, raw in zones.items() if raw is not None]
    chosen = thermal.from_zones(paths)
    if chosen is None:
        return failed(
            f"{len(readable)} of {len(zones)} thermal zones are readable, but none of the processor", zones=zones
        )
    detail = f"{len(readable)} of {len(zones)} thermal zones are readable; the processor is at {chosen.celsius:g} °C"
    return ok(f"{detail} ({chosen.source})", zones=zones)


def thermal_service(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    output = system.output([str(paths.android / "dumpsys"), "thermalservice"], timeout=5)
    reading = thermal.from_service(paths)
    if reading is None:
        return failed("dumpsys thermalservice reports no temperature", output=(output or "").splitlines()[:5])
    return ok(f"{reading.source} is at {reading.celsius:g} °C")


def temperature(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    reading = thermal.read_temperature(battery.read_battery, paths)
    if reading is None:
        return failed("no thermometer is readable: only frequency and step time can show throttling")
    return ok(f"{reading.celsius:g} °C ({reading.source})")


def battery_status() -> CheckResult:
    started = time.monotonic()
    status = _read_battery()
    seconds = time.monotonic() - started
    if status is None:
        return failed(
            f"no response from termux-battery-status in {seconds:.1f} s: was Termux:API installed and opened?"
        )
    return ok(f"termux-battery-status responds in {seconds:.1f} s", keys=sorted(status), seconds=round(seconds, 2))


def _read_battery() -> battery.Battery | None:
    """Bypasses the cache."""
    with tempfile.TemporaryDirectory() as folder:
        return battery.read_battery(Path(folder) / "none")


def charging() -> CheckResult:
    status = _read_battery()
    if status is None:
        return unknown("termux-battery-status did not respond")
    values = {name: status.get(name) for name in ("plugged", "status", "current", "percentage", "temperature")}
    powered = values["plugged"] not in {None, "UNPLUGGED"} and values["status"] in POWERED
    detail = f"{values['plugged']}, {values['status']}, {values['percentage']}%, current {values['current']}"
    return ok_if(powered, detail, **values)


def wake_lock() -> CheckResult:
    started = time.monotonic()
    done = system.output(["termux-wake-lock"], timeout=WAKE_LOCK_S) is not None
    seconds = time.monotonic() - started
    if not done:
        return failed(f"termux-wake-lock is missing, failed or hung ({seconds:.1f} s)")
    return ok(f"termux-wake-lock returned in {seconds:.1f} s; the lock is now held")


def sleep_precision() -> CheckResult:
    """Android stretches the sleeps of background apps, and our communication sleeps while it waits."""
    slack = affinity.reduce_timer_slack()
    seconds = time_steps(lambda: time.sleep(SLEEP_S), SLEEPS, warm_up=0, clock=time.monotonic)
    stretch, worst = median(seconds) / SLEEP_S, max(seconds) / SLEEP_S
    return ok_if(
        stretch <= MAX_STRETCH,
        f"a sleep of {SLEEP_S * 1e3:.0f} ms takes {stretch:.2f} times as long, at worst {worst:.2f} times",
        median_ms=round(median(seconds) * 1e3, 2),
        worst_ms=round(max(seconds) * 1e3, 2),
        timer_slack_ns=slack,
    )
