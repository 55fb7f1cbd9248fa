"""What a virtual phone reports about itself (battery, heat, Android, whether its mirrors answer) and what ails it.

One small file a key, in a directory the phone can read, so that plain shell scripts find their answers there and
a change takes effect while the phone runs.
"""

from __future__ import annotations

import difflib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError

NULL = "null"  # a battery field that the phone leaves out of its answer
WRITTEN_BY_PHONE = frozenset({"wakelock"})
ZONES = ("cpu", "gpu", "skin", "battery")  # in the order of thermal_zone0, 1, ...
ZONE_TYPES = {"cpu": "cpu-1-0-usr", "gpu": "gpuss-0-usr", "skin": "skin-therm", "battery": "battery"}


_CELSIUS = (-40, 200)
_YEAR_S = 365 * 86400


@dataclass(frozen=True)
class Key:
    default: str
    expects: str
    accepts: Callable[[str], bool]


def _choice(*values: str) -> Key:
    return Key(values[0], " or ".join(values), values.__contains__)


def _number(default: float | str, lowest: float = -1e9, highest: float = 1e9, *, null: bool = False) -> Key:
    expects = f"a number from {lowest:g} to {highest:g}" + (f", or {NULL}" if null else "")
    return Key(str(default), expects, lambda value: (null and value == NULL) or _is_number(value, lowest, highest))


def _text(default: str) -> Key:
    return Key(default, "one line of text", lambda value: "\n" not in value)


def _is_number(value: str, lowest: float, highest: float) -> bool:
    try:
        return lowest <= float(value) <= highest
    except ValueError:
        return False


_BATTERY: dict[str, Key] = {
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

_HEAT: dict[str, Key] = {
    "thermal": _choice("readable", "denied"),
    "thermal.cpu": _number(38.2, *_CELSIUS),
    "thermal.gpu": _number(36.5, *_CELSIUS),
    "thermal.skin": _number(33.0, *_CELSIUS),
    "thermal.battery": _number(29.4, *_CELSIUS),
}

_ANDROID: dict[str, Key] = {
    "dump": _choice("denied", "granted"),
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

# What goes wrong with a phone, the healthy value first. Only what differs from it is written down.
HABITS: Mapping[str, Key] = {
    "environment": _choice("termux", "bare"),
    "tmpdir": _choice("ok", "missing"),
    "interface": _choice("single", "extra"),
    "routing": _choice("both", "inbound"),
    "cpuset": _choice("foreground", "background"),
    "throttle": _number(1, 0.05, 1),
    "phantom": _choice("off", "on"),
    "sysv": _choice("denied", "kill"),
    "links": _choice("ok", "denied"),
    "clock": _number(0, -10 * _YEAR_S, 10 * _YEAR_S),
    "sleeps": _choice("normal", "stretched"),
    "penalties": _choice("off", "on"),
    "preload": _choice("ok", "missing"),
    "linker": _choice("ok", "broken"),
    "eth": _choice("eth0", "usb0"),
    "address": _choice("ok", "other"),
    "boot": _choice("ok", "broken"),
    "opencl": _choice("ok", "none", "missing"),
    "proc": _choice("masked", "open", "strict"),
    "platform": _choice("linux", "android"),
}

_REPORTS: Mapping[str, Key] = {**_BATTERY, **_HEAT, **_ANDROID}
KEYS: Mapping[str, Key] = {**_REPORTS, **HABITS}


def told(scenario: Path, key: str) -> str:
    """The value a phone's scenario has for a key."""
    try:
        return (scenario / key).read_text().rstrip("\n")
    except FileNotFoundError:
        return KEYS[key].default


def write_defaults(scenario: Path, sys_class: Path) -> None:
    """A healthy phone: plugged in, cool, its mirrors up."""
    for key, spec in _REPORTS.items():
        apply_scenario(scenario, sys_class, key, spec.default)


def apply_scenario(scenario: Path, sys_class: Path, key: str, value: str) -> None:
    """Change what a phone reports, at once. Raises UsageError for a key or value that means nothing."""
    _check(key, value)
    scenario.mkdir(parents=True, exist_ok=True)
    _replace(scenario / key, value)
    if key == "thermal":
        _thermal(sys_class).chmod(0o755 if value == "readable" else 0o000)
    elif key.startswith("thermal."):
        _write_zone(sys_class, key.removeprefix("thermal."), float(value))


def _check(key: str, value: str) -> None:
    if key not in KEYS:
        close = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"keys are {', '.join(KEYS)}"
        raise UsageError(f"a phone has no setting {key!r}", remedy=hint)
    if not KEYS[key].accepts(value):
        raise UsageError(f"{key} cannot be {value!r}", remedy=f"give {KEYS[key].expects}")


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
    _replace(zone / "type", ZONE_TYPES[name])
    _replace(zone / "temp", str(round(celsius * 1000)))
    thermal.chmod(mode)


def _replace(path: Path, line: str) -> None:
    """At once: the phone reads while we write."""
    written = path.with_name(f".{path.name}.new")
    written.write_text(f"{line}\n")
    written.chmod(0o666 if path.name in WRITTEN_BY_PHONE else 0o644)
    written.replace(path)
