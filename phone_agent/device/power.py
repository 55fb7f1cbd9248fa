"""What the battery gives: current times voltage, now. By Termux:API on phones; by the kernel where it may be read.

Android denies applications /sys/class/power_supply; other Linux devices have no Termux:API. The sign of the current
differs between phones, so power is its size: while the phone is plugged in, that is what flows into the battery too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from phone_agent.contract.files import read_int, read_text
from phone_agent.device import commands
from phone_agent.device.battery import COMMAND, TIMEOUT_S
from phone_agent.device.roots import REAL, Roots

MICRO, MILLI = 1e-6, 1e-3
SMALLEST_MICROAMPERES = 10_000  # some phones tell milliamperes: no phone that is on takes less than 10 mA


@dataclass(frozen=True)
class Power:
    """`plugged`: what the phone says of its supply; None where that is not told."""

    current_a: float
    voltage_v: float
    plugged: str | None
    source: str

    @property
    def watts(self) -> float:
        return abs(self.current_a) * self.voltage_v


def read_power(roots: Roots = REAL) -> Power | None:
    """Afresh: takes a second on a phone, and at most six. None where there is no battery, or it will not tell."""
    return next(_from_kernel(roots), None) or _from_service()


def _from_kernel(roots: Roots) -> Iterator[Power]:
    for folder in sorted((roots.sys / "class" / "power_supply").glob("*")):
        if read_text(folder / "type") != "Battery":
            continue
        current, voltage = read_int(folder / "current_now"), read_int(folder / "voltage_now")
        if current is not None and voltage:
            yield Power(current * MICRO, voltage * MICRO, read_text(folder / "status"), f"kernel, {folder.name}")


def _from_service() -> Power | None:
    try:
        told = json.loads(commands.output([COMMAND], timeout=TIMEOUT_S) or "")
    except ValueError:
        return None
    return from_answer(told)


def from_answer(told: Any) -> Power | None:
    """Of termux-battery-status. Older versions tell no voltage."""
    if not isinstance(told, dict):
        return None
    current, voltage = told.get("current"), told.get("voltage")
    if not isinstance(current, int | float) or not isinstance(voltage, int | float) or voltage <= 0:
        return None
    unit = MICRO if abs(current) >= SMALLEST_MICROAMPERES else MILLI
    plugged = told.get("plugged")
    return Power(current * unit, voltage * MILLI, plugged if isinstance(plugged, str) else None, COMMAND)
