"""Processor temperature, from the first readable source, because phones differ in what an app may read:

1. thermal zones of the CPU, then of the chip, in /sys/class/thermal
2. Android's thermal service (needs the DUMP permission)
3. the battery
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from phone_agent.contract.files import read_int, read_text
from phone_agent.device import system
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

CPU_ZONE = re.compile(r"^(cpu|mtktscpu|big|little|apc)", re.IGNORECASE)
CHIP_ZONE = re.compile(r"^(tsens|soc|ap\b|ap_|exynos|x86_pkg)", re.IGNORECASE)
SERVICE_CPU = re.compile(r"Temperature\{mValue=(-?[0-9.]+), mType=0, mName=([^,}]+)")


@dataclass(frozen=True)
class Temperature:
    celsius: float
    source: str


def read_temperature(
    battery: Callable[[], dict[str, Any] | None], paths: SystemPaths = DEFAULT_PATHS
) -> Temperature | None:
    return from_zones(paths) or from_service(paths) or from_battery(battery())


def from_zones(paths: SystemPaths = DEFAULT_PATHS) -> Temperature | None:
    """The hottest CPU zone, else the hottest chip zone."""
    zones = _zones(paths)
    for kind in (CPU_ZONE, CHIP_ZONE):
        matching = [zone for zone in zones if kind.match(zone.source)]
        if matching:
            return max(matching, key=lambda zone: zone.celsius)
    return None


def from_service(paths: SystemPaths = DEFAULT_PATHS) -> Temperature | None:
    report = system.output([str(paths.android / "dumpsys"), "thermalservice"], timeout=2) or ""
    readings = [Temperature(float(value), name) for value, name in SERVICE_CPU.findall(report)]
    return max(readings, key=lambda reading: reading.celsius, default=None)


def from_battery(battery: dict[str, Any] | None) -> Temperature | None:
    celsius = (battery or {}).get("temperature")
    return Temperature(float(celsius), "battery") if isinstance(celsius, int | float) else None


def _zones(paths: SystemPaths) -> list[Temperature]:
    found = []
    for folder in sorted((paths.sys / "class" / "thermal").glob("thermal_zone*")):
        kind, raw = read_text(folder / "type"), read_int(folder / "temp")
        celsius = _celsius(raw) if raw is not None else None
        if kind and celsius is not None:
            found.append(Temperature(celsius, kind))
    return found


def _celsius(raw: int) -> float | None:
    """Kernels report thousandths of a degree, some drivers tenths or degrees; a disabled sensor reports nonsense."""
    scale = 1000 if abs(raw) >= 1000 else 10 if abs(raw) >= 200 else 1
    return raw / scale if 0 < raw / scale < 150 else None
