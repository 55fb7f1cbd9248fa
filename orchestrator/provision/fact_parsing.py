"""Parsers shared by all facts about phones. A malformed value is unknown, never an exception."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.text import one_line

_SSH_VERSION: Final = re.compile(r"OpenSSH_([0-9]{1,4})\.([0-9]{1,4})")
_INTEGER: Final = re.compile(r"[0-9]{1,18}")
_MAX_TEXT: Final = 80


class FactLines:
    """What a facts script printed: one fact per line, a key and its values separated by tabs.

    Other lines, such as a greeting or a warning, are ignored.
    """

    def __init__(self, rows: Iterable[list[str]]) -> None:
        self._rows = [row for row in rows if row]
        self._last = {key: values for key, *values in self._rows}

    @classmethod
    def parse(cls, output: str) -> FactLines:
        return cls(line.split("\t") for line in output.splitlines() if "\t" in line)

    def __contains__(self, key: str) -> bool:
        return key in self._last

    def __bool__(self) -> bool:
        return bool(self._rows)

    def values(self, key: str) -> list[str]:
        """The values of the last line with this key."""
        return self._last.get(key, [])

    def text(self, key: str) -> str:
        """The first value; empty if there is none."""
        values = self.values(key)
        return values[0] if values else ""

    def integer(self, key: str) -> int | None:
        return parse_integer(self.text(key))

    def rows(self, key: str, width: int) -> list[list[str]]:
        """The values of all lines with this key that have exactly `width` of them."""
        return [values for name, *values in self._rows if name == key and len(values) == width]

    def pairs(self, key: str) -> list[tuple[str, str]]:
        return [(first, second) for first, second in self.rows(key, 2)]


@dataclass(frozen=True)
class Battery:
    """What `termux-battery-status` reports."""

    percent: int | None = None
    status: str | None = None  # CHARGING, DISCHARGING, FULL, NOT_CHARGING
    plugged: bool | None = None
    temperature_c: float | None = None
    power_source: str | None = None  # PLUGGED_AC, PLUGGED_USB, PLUGGED_WIRELESS, UNPLUGGED


def parse_battery(raw: Any) -> Battery | None:
    """None if it reports nothing."""
    if not isinstance(raw, dict):
        return None
    power_source = as_text(raw.get("plugged"))
    battery = Battery(
        percent=as_integer(raw.get("percentage")),
        status=as_text(raw.get("status")),
        plugged=None if power_source is None else power_source != "UNPLUGGED",
        temperature_c=as_number(raw.get("temperature")),
        power_source=power_source,
    )
    return None if battery == Battery() else battery


def parse_ssh_version(text: str) -> tuple[int, int] | None:
    """From the output of `ssh -V`."""
    found = _SSH_VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def parse_integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def clock_offset(epoch: float | None, window: tuple[float, float]) -> float | None:
    """How far the phone's clock is ahead (negative: behind), beyond doubt.

    `window`: when this computer sent the request and when it had the answer. The phone read its clock between the two,
    so a time within the window counts as correct.
    """
    if epoch is None:
        return None
    sent, received = window
    return min(epoch - sent, 0.0) + max(epoch - received, 0.0)


def parse_object(text: str) -> dict[str, Any] | None:
    """A JSON object; None if the text is anything else."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def as_text(raw: Any) -> str | None:
    return one_line(raw, _MAX_TEXT) if isinstance(raw, str) and raw else None


def as_number(raw: Any) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    number = _converted(float, raw)
    return number if number is not None and math.isfinite(number) else None


def as_integer(raw: Any) -> int | None:
    number = as_number(raw)
    return None if number is None else round(number)


def _converted(convert: Callable[[Any], float], raw: Any) -> float | None:
    try:
        return convert(raw)
    except (ValueError, OverflowError):
        return None
