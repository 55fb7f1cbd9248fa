"""What a phone reports about itself, and how the settings change it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.lab.settings import FAULTS
from orchestrator.lab.termux import QUIRKS, SETTINGS
from tests.orchestrator.lab.termux_phone import Phone, bare_phone, open_directory, served_mirror

DOCUMENTED_ORDER = (
    "present technology health plugged status temperature voltage current current_average percentage level scale "
    "charge_counter energy cycle"
)


@pytest.fixture(scope="module")
def with_api() -> Iterator[Phone]:
    """A phone with the termux-api package."""
    with open_directory() as directory, served_mirror(directory / "mirror") as url:
        phone = bare_phone(directory / "phone")
        phone.use_mirror(url)
        phone.ok("apt-get update && apt-get -y install termux-api")
        yield phone


@pytest.fixture
def phone(with_api: Phone) -> Iterator[Phone]:
    """The same phone, healthy again after each test."""
    yield with_api
    for key, spec in SETTINGS.items():
        with_api.set(key, spec.default)


def test_battery_fields_come_in_the_documented_order_without_nulls(phone: Phone) -> None:
    order = DOCUMENTED_ORDER.split()
    status = json.loads(phone.ok("termux-battery-status"))
    assert list(status) == [name for name in order if name in status]
    assert {"current_average", "energy", "cycle"}.isdisjoint(status)
    phone.set("battery.cycle", "311")
    phone.set("battery.current", "null")
    status = json.loads(phone.ok("termux-battery-status"))
    assert (status["cycle"], "current" in status) == (311, False)


def test_the_battery_status_follows_the_settings(phone: Phone) -> None:
    for key, value in (
        ("percentage", "7"),
        ("plugged", "UNPLUGGED"),
        ("status", "DISCHARGING"),
        ("temperature", "46.1"),
    ):
        phone.set(f"battery.{key}", value)
    status = json.loads(phone.ok("termux-battery-status"))
    assert (status["percentage"], status["plugged"], status["status"]) == (7, "UNPLUGGED", "DISCHARGING")
    assert status["temperature"] == 46.1


def test_the_battery_call_can_hang(phone: Phone) -> None:
    phone.set("battery", "hang")
    assert phone.run("timeout 2 termux-battery-status </dev/null").returncode == 124


def test_thermal_zones_follow_the_settings(phone: Phone) -> None:
    phone.set("thermal.cpu", "71.5")
    zone = phone.root / "class/thermal/thermal_zone0"
    assert (zone / "type").read_text() == "cpu-1-0-usr\n"
    assert (zone / "temp").read_text() == "71500\n"


@pytest.mark.skipif(os.getuid() != 0, reason="the owner of the files could read them")
def test_thermal_zones_can_be_denied(phone: Phone) -> None:
    zone = phone.root / "class/thermal/thermal_zone0/temp"
    phone.set("thermal", "denied")
    phone.set("thermal.cpu", "50")
    assert "Permission denied" in phone.run(f"cat {zone}").stderr
    phone.set("thermal", "readable")
    assert phone.ok(f"cat {zone}") == "50000\n"


def test_dumpsys_needs_the_dump_permission(phone: Phone) -> None:
    dumpsys = "$ANDROID_ROOT/bin/dumpsys"
    assert "Can't find service: battery" in phone.ok(f"{dumpsys} battery")
    assert "Permission Denial" in phone.ok(f"{dumpsys} thermalservice")
    phone.set("dumpsys", "granted")
    phone.set("thermal.skin", "41.0")
    assert "Temperature{mValue=41.0, mType=3, mName=SKIN" in phone.ok(f"{dumpsys} thermalservice")


def test_getprop_reports_a_galaxy_s10_plus(phone: Phone) -> None:
    assert phone.ok("getprop ro.product.model") == "SM-G975U\n"
    assert phone.ok("getprop no.such.property fallback") == "fallback\n"
    assert "[ro.build.version.sdk]: [31]" in phone.ok("getprop")
    phone.set("prop.ro.build.version.release", "9")
    assert phone.ok("getprop ro.build.version.release") == "9\n"


def test_the_wake_lock_state_is_stored(phone: Phone) -> None:
    phone.ok("termux-wake-lock")
    assert phone.ok("$ANDROID_ROOT/bin/scenario wakelock") == "acquired\n"
    phone.ok("termux-wake-unlock")
    assert phone.ok("$ANDROID_ROOT/bin/scenario wakelock") == "released\n"


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("battery.percentge", "5", "did you mean battery.percentage?"),
        ("battery.percentage", "full", "give a number from 0 to 100, or null"),
        ("battery.percentage", "500", "give a number from 0 to 100, or null"),
        ("thermal.cpu", "null", "give a number from -40 to 200"),
        ("mirror", "sideways", "give up or down"),
        ("battery.technology", "two\nlines", "give one line of text"),
    ],
)
def test_an_invalid_setting_is_rejected_with_a_hint(phone: Phone, key: str, value: str, hint: str) -> None:
    with pytest.raises(UsageError) as rejected:
        phone.set(key, value)
    assert rejected.value.remedy == hint


def test_every_fault_and_quirk_is_documented() -> None:
    guide = (Path(__file__).parents[3] / "docs/guide/lab.md").read_text()
    assert [key for key in (*FAULTS, *QUIRKS) if f"| `{key}=" not in guide] == []
