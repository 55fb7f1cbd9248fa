"""The settings of a virtual phone: what it reports (battery, temperatures, properties), and its quirks.

The scenario directory has one small file per setting. The phone can read it, so shell scripts answer from these files
and a change takes effect while the phone runs.
"""

from __future__ import annotations

import difflib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError

NULL = "null"  # omits a battery field from the output
WRITTEN_BY_PHONE = frozenset({"wakelock"})
ZONES = ("cpu", "gpu", "skin", "battery")  # thermal_zone0, thermal_zone1, ...
ZONE_TYPES = {"cpu": "cpu-1-0-usr", "gpu": "gpuss-0-usr", "skin": "skin-therm", "battery": "battery"}


_CELSIUS = (-40, 200)
_YEAR_S = 365 * 86400


@dataclass(frozen=True)
class Setting:
    default: str
    expects: str
    accepts: Callable[[str], bool]


def _choice(*values: str) -> Setting:
    return Setting(values[0], " or ".join(values), values.__contains__)


def _number(default: float | str, low: float = -1e9, high: float = 1e9, *, null: bool = False) -> Setting:
    expects = f"a number from {low:g} to {high:g}" + (f", or {NULL}" if null else "")
    return Setting(str(default), expects, lambda value: (null and value == NULL) or _is_number(value, low, high))


def _text(default: str) -> Setting:
    return Setting(default, "one line of text", lambda value: "\n" not in value)


def _is_number(value: str, low: float, high: float) -> bool:
    try:
        return low <= float(value) <= high
    except ValueError:
        return False


_BATTERY: dict[str, Setting] = {
    "battery": _choice("ok", "hang"),
    "battery.present": _choice("true", "false", NULL),
    "battery.technology": _text("Li-ion"),
    "battery.health": _choice(
        "GOOD", "OVERHEAT", "COLD", "DEAD", "OVER_VOLTAGE", "UNKNOWN", "UNSPECIFIED_FAILURE", NULL
    ),
    "battery.plugged": _choice("PLUGGED_AC", "UNPLUGGED", "PLUGGED_USB", "PLUGGED_WIRELESS", "PLUGGED_DOCK", NULL),
    "battery.status": _choice("CHARGING", "DISCHARGING", "FULL", "NOT_CHARGING", "UNKNOWN", NULL),
    "battery.temperature": _number(29.4, *_CELSIUS, null=True),
    "battery.voltage": _number(4213, 0, 20000, null=True),
    "battery.current": _number(231000, null=True),
    "battery.current_average": _number(NULL, null=True),
    "battery.percentage": _number(96, 0, 100, null=True),
    "battery.level": _number(96, 0, 1000, null=True),
    "battery.scale": _number(100, 1, 1000, null=True),
    "battery.charge_counter": _number(3744000, 0, null=True),
    "battery.energy": _number(NULL, 0, null=True),
    "battery.cycle": _number(NULL, 0, null=True),
}

_THERMAL: dict[str, Setting] = {
    "thermal": _choice("readable", "denied"),
    "thermal.cpu": _number(38.2, *_CELSIUS),
    "thermal.gpu": _number(36.5, *_CELSIUS),
    "thermal.skin": _number(33.0, *_CELSIUS),
    "thermal.battery": _number(29.4, *_CELSIUS),
}

_ANDROID: dict[str, Setting] = {
    "dumpsys": _choice("denied", "granted"),
    "mirror": _choice("up", "down"),
    "wakelock": _choice("released", "acquired"),
    "prop.ro.board.platform": _text("msmnile"),
    "prop.ro.build.version.release": _text("12"),
    "prop.ro.build.version.sdk": _number(31, 1, 99),
    "prop.ro.hardware": _text("qcom"),
    "prop.ro.product.brand": _text("samsung"),
    "prop.ro.product.cpu.abi": _text("arm64-v8a" if platform.machine() == "aarch64" else platform.machine()),
    "prop.ro.product.device": _text("beyond2q"),
    "prop.ro.product.manufacturer": _text("samsung"),
    "prop.ro.product.model": _text("SM-G975U"),
    "prop.ro.soc.model": _text("SM8150"),
}

# Quirks and faults, default value first. Only values that were changed are stored.
QUIRKS: Mapping[str, Setting] = {
    "environment": _choice("termux", "bare"),
    "tmpdir": _choice("ok", "missing"),
    "cellular": _choice("off", "on"),
    "outbound": _choice("ok", "blocked"),
    "cpuset": _choice("foreground", "background"),
    "throttle": _number(1, 0.05, 1),
    "phantom": _choice("off", "on"),
    "sysvipc": _choice("enosys", "sigsys"),
    "hardlinks": _choice("ok", "denied"),
    "clock": _number(0, -10 * _YEAR_S, 10 * _YEAR_S),
    "doze": _choice("off", "on"),
    "penalties": _choice("off", "on"),
    "preload": _choice("ok", "missing"),
    "linker": _choice("ok", "broken"),
    "interface": _choice("eth0", "usb0"),
    "address": _choice("ok", "changed"),
    "boot": _choice("ok", "broken"),
    "opencl": _choice("ok", "no-platform", "no-library"),
    "proc": _choice("masked", "open", "strict"),
    "platform": _choice("linux", "android"),
}

_REPORTED: Mapping[str, Setting] = {**_BATTERY, **_THERMAL, **_ANDROID}
SETTINGS: Mapping[str, Setting] = {**_REPORTED, **QUIRKS}


def read_setting(scenario: Path, key: str) -> str:
    """The current value of a setting."""
    try:
        return (scenario / key).read_text().rstrip("\n")
    except FileNotFoundError:
        return SETTINGS[key].default


def write_defaults(scenario: Path, sys_class: Path) -> None:
    """Write the settings of a healthy phone."""
    for key, spec in _REPORTED.items():
        write_setting(scenario, sys_class, key, spec.default)


def write_setting(scenario: Path, sys_class: Path, key: str, value: str) -> None:
    """Change a setting. Raise UsageError if the key or the value is invalid."""
    _check(key, value)
    scenario.mkdir(parents=True, exist_ok=True)
    _write_atomically(scenario / key, value)
    if key == "thermal":
        _thermal(sys_class).chmod(0o755 if value == "readable" else 0o000)
    elif key.startswith("thermal."):
        _write_zone(sys_class, key.removeprefix("thermal."), float(value))


def _check(key: str, value: str) -> None:
    if key not in SETTINGS:
        close = difflib.get_close_matches(key, SETTINGS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"keys are {', '.join(SETTINGS)}"
        raise UsageError(f"unknown setting {key!r}", remedy=hint)
    if not SETTINGS[key].accepts(value):
        raise UsageError(f"{key} cannot be {value!r}", remedy=f"give {SETTINGS[key].expects}")


def _thermal(sys_class: Path) -> Path:
    thermal = sys_class / "thermal"
    thermal.mkdir(parents=True, exist_ok=True)
    return thermal


def _write_zone(sys_class: Path, name: str, celsius: float) -> None:
    thermal = sys_class / "thermal"
    mode = thermal.stat().st_mode if thermal.exists() else 0o755
    _thermal(sys_class).chmod(0o755)
    zone = thermal / f"thermal_zone{ZONES.index(name)}"
    zone.mkdir(exist_ok=True)
    _write_atomically(zone / "type", ZONE_TYPES[name])
    _write_atomically(zone / "temp", str(round(celsius * 1000)))
    thermal.chmod(mode)


def _write_atomically(path: Path, line: str) -> None:
    """Write atomically, because the phone may read at any time."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(f"{line}\n")
    temporary.chmod(0o666 if path.name in WRITTEN_BY_PHONE else 0o644)
    temporary.replace(path)
