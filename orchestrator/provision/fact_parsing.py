"""Parsers shared by all facts about phones. A malformed value is unknown, never an exception."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from phone_agent.contract.decode import DecodeError, decode_json
from phone_agent.contract.replies import BatteryReply

_SSH_VERSION: Final = re.compile(r"OpenSSH_([0-9]{1,4})\.([0-9]{1,4})")
_INTEGER: Final = re.compile(r"[0-9]{1,18}")


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


def read_battery(reply: BatteryReply | None) -> Battery | None:
    """None if it reports nothing."""
    if reply is None or reply == BatteryReply():
        return None
    return Battery(
        percent=None if reply.percentage is None else round(reply.percentage),
        status=reply.status,
        plugged=None if reply.plugged is None else reply.plugged != "UNPLUGGED",
        temperature_c=reply.temperature,
        power_source=reply.plugged,
    )


def parse_battery(text: str) -> Battery | None:
    """From the output of `termux-battery-status`."""
    try:
        return read_battery(decode_json(BatteryReply, text))
    except DecodeError:
        return None


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


def as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
