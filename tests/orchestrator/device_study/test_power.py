"""Battery power on phones and laptops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phone_agent.device.power import parse_battery_status, read_power
from phone_agent.device.system import SystemPaths


@pytest.mark.parametrize(
    ("current", "amperes"), [(-1_130_000, -1.13), (231_000, 0.231), (-350, -0.35), (0, 0.0)],
    ids=["microamperes", "charging", "milliamperes", "nothing"],
)  # fmt: skip
def test_current_in_either_unit(current: int, amperes: float) -> None:
    power = parse_battery_status({"current": current, "voltage": 4050, "plugged": "UNPLUGGED"})
    assert power is not None
    assert power.current_a == pytest.approx(amperes)
    assert power.watts == pytest.approx(abs(amperes) * 4.05)
    assert power.plugged == "UNPLUGGED"


@pytest.mark.parametrize(
    "status", [None, [], {}, {"current": 1}, {"current": "much", "voltage": 4000}, {"current": 1, "voltage": 0}]
)
def test_incomplete_battery_status_is_none(status: Any) -> None:
    assert parse_battery_status(status) is None


def test_laptop_power_from_sysfs(tmp_path: Path) -> None:
    folders = {
        "AC": {"type": "Mains"},
        "BAT0": {"type": "Battery", "current_now": "1500000", "voltage_now": "12000000", "status": "Discharging"},
    }
    for name, files in folders.items():
        folder = tmp_path / "class" / "power_supply" / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text)
    power = read_power(SystemPaths(sys=tmp_path))
    assert power is not None
    assert power.watts == pytest.approx(18.0)
    assert (power.plugged, power.source) == ("Discharging", "kernel, BAT0")
