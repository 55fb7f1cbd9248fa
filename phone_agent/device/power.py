"""Battery power: current times voltage, from Termux:API on phones and from sysfs where that is readable.

Android hides /sys/class/power_supply from apps; other Linux devices have no Termux:API. The sign of the current
differs between phones, so power is the absolute value: while the phone is plugged in, it may be charging power.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from phone_agent.contract.files import read_int, read_text
from phone_agent.device import system
from phone_agent.device.battery import COMMAND, TIMEOUT_S
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

MICRO, MILLI = 1e-6, 1e-3
SMALLEST_MICROAMPERES = 10_000  # some phones report mA: no running phone draws less than 10 mA


@dataclass(frozen=True)
class Power:
    """`plugged`: the power source that the phone reports; None if unknown."""

    current_a: float
    voltage_v: float
    plugged: str | None
    source: str

    @property
    def watts(self) -> float:
        return abs(self.current_a) * self.voltage_v


def read_power(paths: SystemPaths = DEFAULT_PATHS) -> Power | None:
    """Not cached: takes about one second on a phone, at most six. None if there is no battery or it is not readable."""
    return next(_from_sysfs(paths), None) or _from_termux_api()


def _from_sysfs(paths: SystemPaths) -> Iterator[Power]:
    for folder in sorted((paths.sys / "class" / "power_supply").glob("*")):
        if read_text(folder / "type") != "Battery":
            continue
        current, voltage = read_int(folder / "current_now"), read_int(folder / "voltage_now")
        if current is not None and voltage:
            yield Power(current * MICRO, voltage * MICRO, read_text(folder / "status"), f"kernel, {folder.name}")


def _from_termux_api() -> Power | None:
    try:
        status = json.loads(system.output([COMMAND], timeout=TIMEOUT_S) or "")
    except ValueError:
        return None
    return parse_battery_status(status)


def parse_battery_status(status: Any) -> Power | None:
    """Parses termux-battery-status. Older versions report no voltage."""
    if not isinstance(status, dict):
        return None
    current, voltage = status.get("current"), status.get("voltage")
    if not isinstance(current, int | float) or not isinstance(voltage, int | float) or voltage <= 0:
        return None
    unit = MICRO if abs(current) >= SMALLEST_MICROAMPERES else MILLI
    plugged = status.get("plugged")
    return Power(current * unit, voltage * MILLI, plugged if isinstance(plugged, str) else None, COMMAND)
