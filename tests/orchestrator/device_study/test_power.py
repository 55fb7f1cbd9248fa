"""Battery power on phones and laptops, with readings of real phones from public bug reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phone_agent.device import power
from phone_agent.device.power import MICRO, MILLI, PowerMeter, decide_unit, parse_battery_status
from phone_agent.device.system import SystemPaths


def status(current: float, voltage: float = 4050, **others: Any) -> dict[str, Any]:
    return {"current": current, "voltage": voltage, **others}


UNPLUGGED: dict[str, Any] = {"plugged": "UNPLUGGED", "status": "DISCHARGING", "percentage": 52}
CHARGING: dict[str, Any] = {"plugged": "PLUGGED_AC", "status": "CHARGING", "percentage": 60}
CHARGED: dict[str, Any] = {"plugged": "PLUGGED_AC", "status": "FULL", "percentage": 100}
HELD: dict[str, Any] = {"plugged": "PLUGGED_USB", "status": "NOT_CHARGING", "percentage": 44}


def unit_of(*statuses: dict[str, Any], seconds: float = 1.0) -> power.UnitDecision:
    readings = [parse_battery_status(each, number * seconds) for number, each in enumerate(statuses)]
    return decide_unit([reading for reading in readings if reading is not None])


@pytest.mark.parametrize(
    ("statuses", "unit"),
    [
        pytest.param([status(-1_130_000, **UNPLUGGED)], MICRO, id="most phones"),
        pytest.param([status(231_000, 4300, **CHARGING)], MICRO, id="most phones, charging"),
        pytest.param([status(5_000, 4300, **CHARGED)], MICRO, id="charged: 21.5 mW, not 21.5 W"),
        pytest.param([status(976, 3815, **HELD)], None, id="Pixel 3a on USB, not charging"),
        pytest.param([status(976, 3815, **HELD), status(-412_000, 3815, **HELD)], MICRO, id="Pixel 3a after a load"),
        pytest.param([status(232, 3900, plugged="UNPLUGGED", status="NOT_CHARGING")], MILLI, id="232 mA, unplugged"),
        pytest.param([status(-350, **UNPLUGGED)], MILLI, id="Galaxy S21 in mA"),
        pytest.param([status(1_450, 4100, **CHARGING)] * 3, MILLI, id="Galaxy in mA, charging"),
        pytest.param([status(1_450, 4100, **CHARGING)], None, id="one reading while charging"),
        pytest.param([status(-252, 4300, plugged="PLUGGED_AC", status="CHARGING", percentage=96)] * 5, None,
                     id="almost charged"),
        pytest.param([status(3, 4350, **CHARGED)], None, id="charged, next to nothing"),
        pytest.param([status(0, **CHARGED)], None, id="no current"),
        pytest.param([status(7_000, **UNPLUGGED)], None, id="28 W or 28 mW, unplugged"),
        pytest.param([status(-2_900_000, 8.1, **UNPLUGGED)], None, id="23 W from a battery of two cells"),
    ],
)  # fmt: skip
def test_unit_of_the_current(statuses: list[dict[str, Any]], unit: float | None) -> None:
    decision = unit_of(*statuses)
    assert decision.unit == unit, decision.basis
    assert decision.basis.startswith({MICRO: "µA: ", MILLI: "mA: ", None: ""}[unit])
    assert decision.basis


def test_charge_counter_decides() -> None:
    """Held at 80 % by Android: 4 mA against 4 A for a minute."""

    def counted(change: int, unit: int = 1) -> power.UnitDecision:
        statuses = [status(4_000, 4100, **CHARGING, charge_counter=(2_700_000 + change * at) // unit) for at in (0, 1)]
        return unit_of(*statuses, seconds=60)

    assert counted(0).unit == MICRO
    assert counted(66_667).unit == MILLI
    assert counted(66_667, unit=1000).unit == MILLI  # a counter in mAh
    assert counted(8_000).unit is None
    assert "charge counter changed by 66667 µAh in 60 s" in counted(66_667).basis


@pytest.mark.parametrize(("voltage", "volts"), [(4050, 4.05), (4.05, 4.05), (4_050_000, 4.05), (8_400, 8.4)])
def test_voltage_in_any_unit(voltage: float, volts: float) -> None:
    reading = parse_battery_status(status(-350_000, voltage))
    assert reading is not None
    assert reading.voltage_v == pytest.approx(volts)


@pytest.mark.parametrize(
    "incomplete",
    [None, [], {}, {"current": 1}, {"current": "much", "voltage": 4000}, {"current": 1, "voltage": 0},
     {"current": True, "voltage": 4000}, {"current": 1, "voltage": 40}],
)  # fmt: skip
def test_incomplete_battery_status_is_none(incomplete: Any) -> None:
    assert parse_battery_status(incomplete) is None


def test_implausible_power_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A phone in µA: one wrong reading among right ones."""
    meter = PowerMeter(SystemPaths(sys=tmp_path))
    statuses = iter([status(-400_000, **UNPLUGGED), status(9_000_000, **CHARGING), status(-4_000, **CHARGED)])
    monkeypatch.setattr(power, "_from_termux_api", lambda: parse_battery_status(next(statuses)))
    readings = [meter.read() for _ in range(3)]
    powers = [meter.power(reading) for reading in readings if reading]
    assert [found and round(found.watts, 4) for found in powers] == [1.62, None, 0.0162]


def test_later_readings_decide_for_earlier_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    meter = PowerMeter(SystemPaths(sys=tmp_path))
    statuses = iter([status(976, 3815, **HELD), status(-412_000, 3815, **HELD)])
    monkeypatch.setattr(power, "_from_termux_api", lambda: parse_battery_status(next(statuses)))
    first = meter.read()
    assert first is not None
    assert meter.power(first) is None
    meter.read()
    decided = meter.power(first)
    assert decided is not None
    assert decided.watts == pytest.approx(976e-6 * 3.815)


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
    meter = PowerMeter(SystemPaths(sys=tmp_path))
    reading = meter.read()
    assert reading is not None
    found = meter.power(reading)
    assert found is not None
    assert found.watts == pytest.approx(18.0)
    assert (found.plugged, found.source) == ("Discharging", "kernel, BAT0")
    assert meter.decision.basis == "the kernel reports µA"
