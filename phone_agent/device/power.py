"""Battery power: current times voltage, from Termux:API on phones and from sysfs where that is readable.

Android hides /sys/class/power_supply from apps; other Linux devices have no Termux:API. The sign of the current
differs between phones, so power is the absolute value: while the phone is plugged in, it may be charging power.

Android specifies microamperes, but phones of several makers (Samsung, Huawei) report milliamperes. No single reading
tells which: 976 is 976 µA on a Pixel that is plugged in and not charging, and 976 mA on a Galaxy. So the unit is
decided from all readings of a phone, and without a decision there is no power.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import mean
from typing import Any

from phone_agent.contract.files import read_int, read_text
from phone_agent.device import system
from phone_agent.device.battery import COMMAND, TIMEOUT_S
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

MICRO, MILLI = 1e-6, 1e-3
UNITS = {MICRO: "µA", MILLI: "mA"}
KERNEL_BASIS = "the kernel reports µA"
MAX_READINGS = 600

# Plausible watts of the battery of a phone that runs this program, by state
UNPLUGGED_W = (0.05, 15.0)
FULL_W = (0.0, 5.0)
CHARGING_W = (0.0, 30.0)
OTHER_W = (0.0, 15.0)

SMALL_CURRENT = 10_000  # 10 mA in µA; as mA, no phone has so much
CHARGING_READINGS = 3  # with a small current while the battery charges: then it is in mA
CHARGING_PERCENT = 95  # below this, batteries do not charge with less than 10 mA
COUNTER_UAH = 5_000  # a change of the charge counter that is large enough to see
SMALLEST_COUNTER_UAH = 100_000  # charge counters below this are in mAh
VOLTAGE_RANGE_V = (2.5, 10.0)  # of one or two cells


@dataclass(frozen=True)
class BatteryReading:
    """`current`: in the unit of the phone. `charge_uah`: the charge counter."""

    current: float
    voltage_v: float
    plugged: str | None = None
    status: str | None = None
    percentage: float | None = None
    charge_uah: float | None = None
    at_s: float = 0.0
    source: str = COMMAND
    unit: float | None = None  # amperes, if the source defines it

    @property
    def plausible_watts(self) -> tuple[float, float]:
        if self.plugged == "UNPLUGGED":
            return UNPLUGGED_W
        if self.status == "FULL" or self.percentage == 100:
            return FULL_W
        return CHARGING_W if self.status == "CHARGING" else OTHER_W

    def is_plausible(self, unit: float) -> bool:
        low, high = self.plausible_watts
        return low <= abs(self.current) * unit * self.voltage_v <= high


@dataclass(frozen=True)
class UnitDecision:
    """Amperes per unit of the current, or None; and how that was decided."""

    unit: float | None
    basis: str


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


@dataclass
class PowerMeter:
    """Reads the battery, and decides the unit of its current from all readings so far."""

    paths: SystemPaths = DEFAULT_PATHS
    _readings: deque[BatteryReading] = field(default_factory=lambda: deque(maxlen=MAX_READINGS))

    def read(self) -> BatteryReading | None:
        """Not cached: takes about one second on a phone, at most six. None if there is no battery or it is not
        readable."""
        reading = next(_from_sysfs(self.paths), None) or _from_termux_api()
        if reading is not None:
            self._readings.append(reading)
        return reading

    @property
    def decision(self) -> UnitDecision:
        return decide_unit(tuple(self._readings))

    def power(self, reading: BatteryReading) -> Power | None:
        """None if the unit is unknown, or the power implausible."""
        unit = reading.unit or self.decision.unit
        if unit is None or not (reading.unit or reading.is_plausible(unit)):
            return None
        return Power(reading.current * unit, reading.voltage_v, reading.plugged, reading.source)


@cache
def battery_meter() -> PowerMeter:
    """The meter of this process: every reading helps to decide the unit."""
    return PowerMeter()


def decide_unit(readings: Sequence[BatteryReading]) -> UnitDecision:
    """In order of certainty: by definition, the charge counter, the power that each unit would mean, the battery that
    charges."""
    if readings and readings[-1].unit is not None:
        return UnitDecision(readings[-1].unit, KERNEL_BASIS)
    known = [reading for reading in readings if reading.current]
    if not known:
        return UnitDecision(None, "the battery reports no current")
    return _by_charge_counter(known) or _by_watts(known) or _by_charging(known) or _undecided(known)


def _by_charge_counter(readings: Sequence[BatteryReading]) -> UnitDecision | None:
    """The charge that flowed, against the charge that the currents mean."""
    counted = [reading for reading in readings if reading.charge_uah is not None]
    if len(counted) < 2:
        return None
    first, last = counted[0], counted[-1]
    hours = (last.at_s - first.at_s) / 3600
    if_milliamperes = abs(mean(reading.current for reading in counted)) * 1000 * hours
    if if_milliamperes < COUNTER_UAH:
        return None
    changed = abs((last.charge_uah or 0) - (first.charge_uah or 0))
    basis = f"the charge counter changed by {changed:.0f} µAh in {hours * 3600:.0f} s"
    if changed >= if_milliamperes / 3:
        return UnitDecision(MILLI, f"mA: {basis}")
    return UnitDecision(MICRO, f"µA: {basis}") if changed <= if_milliamperes / 30 else None


def _by_watts(readings: Sequence[BatteryReading]) -> UnitDecision | None:
    """The unit that makes clearly more readings plausible. A few wrong readings do not matter."""
    wrong = {unit: [each for each in readings if not each.is_plausible(unit)] for unit in UNITS}
    unit, other = sorted(UNITS, key=lambda each: len(wrong[each]))
    if not wrong[other]:
        return None
    if 2 * len(wrong[unit]) >= len(wrong[other]):
        return UnitDecision(None, "neither µA nor mA makes the battery current plausible")
    example = wrong[other][-1]
    watts = abs(example.current) * other * example.voltage_v
    reason = f"{example.current:.0f} {UNITS[other]} would be {watts:.3g} W, {_state(example)}"
    return UnitDecision(unit, f"{UNITS[unit]}: {reason}")


def _by_charging(readings: Sequence[BatteryReading]) -> UnitDecision | None:
    """A battery that charges for a while takes more than 10 mA."""
    charging = [
        reading
        for reading in readings
        if reading.status == "CHARGING" and reading.percentage is not None and reading.percentage < CHARGING_PERCENT
    ]
    if len(charging) < CHARGING_READINGS or any(abs(reading.current) >= SMALL_CURRENT for reading in charging):
        return None
    return UnitDecision(MILLI, f"mA: in µA, the battery would charge with less than 10 mA in {len(charging)} readings")


def _undecided(readings: Sequence[BatteryReading]) -> UnitDecision:
    last = readings[-1]
    return UnitDecision(None, f"the battery current {last.current:.0f} may be in µA or mA, {_state(last)}")


def _state(reading: BatteryReading) -> str:
    return f"{reading.plugged or 'charger unknown'}, {reading.status or 'status unknown'}"


def _from_sysfs(paths: SystemPaths) -> Iterator[BatteryReading]:
    for folder in sorted((paths.sys / "class" / "power_supply").glob("*")):
        if read_text(folder / "type") != "Battery":
            continue
        current, voltage = read_int(folder / "current_now"), read_int(folder / "voltage_now")
        if current is not None and voltage:
            status, source = read_text(folder / "status"), f"kernel, {folder.name}"
            yield BatteryReading(current, voltage * MICRO, plugged=status, source=source, unit=MICRO)


def _from_termux_api() -> BatteryReading | None:
    try:
        status = json.loads(system.output([COMMAND], timeout=TIMEOUT_S) or "")
    except ValueError:
        return None
    return parse_battery_status(status, time.monotonic())


def parse_battery_status(status: Any, at_s: float = 0.0) -> BatteryReading | None:
    """Parses termux-battery-status. Older versions report no voltage."""
    if not isinstance(status, dict):
        return None
    current, voltage = _number(status, "current"), _volts(_number(status, "voltage"))
    if current is None or voltage is None:
        return None
    charge = _number(status, "charge_counter")
    if charge is not None and 0 < charge < SMALLEST_COUNTER_UAH:
        charge *= 1000
    return BatteryReading(
        current,
        voltage,
        plugged=_text(status, "plugged"),
        status=_text(status, "status"),
        percentage=_number(status, "percentage"),
        charge_uah=charge if charge and charge > 0 else None,
        at_s=at_s,
    )


def _volts(value: float | None) -> float | None:
    """Android specifies mV; some phones report V or µV. The ranges do not overlap."""
    low, high = VOLTAGE_RANGE_V
    return next((value * unit for unit in (MILLI, 1.0, MICRO) if value and low <= value * unit <= high), None)


def _number(status: dict[str, Any], name: str) -> float | None:
    value = status.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(status: dict[str, Any], name: str) -> str | None:
    value = status.get(name)
    return value if isinstance(value, str) else None
