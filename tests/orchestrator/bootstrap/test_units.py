"""Unit tests without a phone: assignment, adb output, facts, plans."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bootstrap import adb as adb_module
from orchestrator.bootstrap.adb import Adb, AdbError, DeviceState, parse_devices, shell_arguments
from orchestrator.bootstrap.android_facts import AndroidFacts, parse_android_facts
from orchestrator.bootstrap.assignment import UsbPhone, assign, parse_assignments, select_usb_phones
from orchestrator.bootstrap.device_monitor import remedy_for_state
from orchestrator.bootstrap.steps.settings import PowerStep, SettingsStep
from orchestrator.bootstrap.steps.step import BootstrapConfig, PhoneFacts
from orchestrator.errors import PhoneError, UsageError
from orchestrator.inventory.model import Cluster, Phone, Switch

PHONES = tuple(
    Phone(f"p{port}", "sw1", port, IPv4Address(f"10.77.1.{port}"), serial={2: "R58M2"}.get(port))
    for port in range(1, 5)
)
CLUSTER = Cluster(
    "c", IPv4Network("10.77.0.0/16"), None, "eth0", "1gbit", (Switch("sw1", 8, PHONES),), Path("inventory.yaml")
)


def usb_phone(serial: str, name: str | None = None) -> UsbPhone:
    return UsbPhone(name or serial, serial)


def assigned(
    usb_phones: list[UsbPhone], *pairs: str, selected: tuple[Phone, ...] = PHONES, fill: bool = False
) -> dict[str, str]:
    found = assign(usb_phones, CLUSTER, selected, parse_assignments(pairs, CLUSTER), fill_free=fill)
    return {each.usb_phone.serial: each.phone.name for each in found}


class TestAssignment:
    def test_by_inventory_by_flag_and_by_free_ports(self) -> None:
        both = [usb_phone("R58M2"), usb_phone("NEW", "10.0.0.1:5555")]
        assert assigned(both, "NEW=sw1:3") == {"R58M2": "p2", "NEW": "p3"}
        assert assigned(both, "10.0.0.1:5555=p4") == {"R58M2": "p2", "NEW": "p4"}
        assert assigned([usb_phone("B"), usb_phone("A"), usb_phone("R58M2")], fill=True) == {
            "R58M2": "p2",
            "A": "p1",
            "B": "p3",
        }
        assert assigned([*both, usb_phone("X")], "NEW=p1", fill=True, selected=PHONES[:2] + PHONES[3:]) == {
            "R58M2": "p2",
            "NEW": "p1",
            "X": "p4",
        }
        assert assigned(both, "NEW=p3", selected=PHONES[:2]) == {"R58M2": "p2"}

    @pytest.mark.parametrize(
        ("usb_phones", "pairs", "message"),
        [
            ([usb_phone("NEW")], [], "no phone with these serial numbers: NEW"),
            ([usb_phone("A"), usb_phone("B")], ["A=p1", "B=p1"], r"p1 \(sw1:1\) is assigned to both A and B"),
            ([usb_phone("A")], ["A=p2"], "p2 .* has the serial number R58M2, not A"),
            ([usb_phone("A")], ["A=p9"], "has no phone 'p9'"),
            ([usb_phone("A")], ["A"], "write SERIAL=PHONE"),
            ([usb_phone("A")], ["A=p1", "A=p3"], "A is given twice"),
        ],
    )
    def test_invalid_assignments_are_refused(self, usb_phones: list[UsbPhone], pairs: list[str], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            assigned(usb_phones, *pairs)

    def test_too_few_free_ports_are_an_error(self) -> None:
        with pytest.raises(UsageError, match="no free port left for B"):
            assigned([usb_phone("A"), usb_phone("B")], fill=True, selected=PHONES[:2])

    def test_selection_by_serial(self) -> None:
        both = [usb_phone("A"), usb_phone("B", "10.0.0.1:5555")]
        assert select_usb_phones(both, []) == tuple(both)
        assert select_usb_phones(both, ["10.0.0.1:5555"]) == (both[1],)
        with pytest.raises(UsageError, match="--serial C: adb lists no such phone; attached: A, B"):
            select_usb_phones(both, ["C"])
        with pytest.raises(UsageError, match="adb lists no phone"):
            select_usb_phones([], [])


class TestAdb:
    def test_devices(self) -> None:
        text = (
            "* daemon not running; starting now at tcp:5037\n* daemon started successfully\nList of devices attached\n"
            "R58M1\tdevice\nR58M2\tunauthorized\n"
            "R58M3\tno permissions (user in plugdev group; are your udev rules wrong?); see [http://developer…]\n\n"
        )
        assert [(one.name, one.online) for one in parse_devices(text)] == [
            ("R58M1", True),
            ("R58M2", False),
            ("R58M3", False),
        ]

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            ("unauthorized", "accept the dialog on the phone's screen"),
            ("offline", "unplug it and plug it in again"),
            ("recovery", "Reboot system now"),
            ("sideload", "Reboot system now"),
            ("no permissions (user in plugdev group)", "apt-get install android-sdk-platform-tools-common"),
            ("host", "adb reports the state 'host'"),
            (None, "plug the phone in"),
        ],
    )
    def test_every_state_has_a_remedy(self, state: str | None, words: str) -> None:
        assert words in remedy_for_state(state)

    def test_a_missing_adb_is_reported(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(UsageError, match="adb is not installed") as caught:
            Adb.find()
        assert caught.value.remedy == "apt-get install adb"

    def test_it_is_killed_at_the_time_limit(self, tmp_path: Path) -> None:
        with pytest.raises(AdbError, match=r"not finished after 0\.2 s"):
            Adb(program(tmp_path, "exec sleep 600")).run("devices", timeout=0.2)

    def test_it_is_killed_at_the_output_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(adb_module, "_MAX_OUTPUT", 10_000)
        with pytest.raises(AdbError, match="of output"):
            Adb(program(tmp_path, "exec yes")).run("devices")

    def test_it_need_not_read_its_input(self, tmp_path: Path) -> None:
        assert Adb(program(tmp_path, "exit 3")).run("devices", stdin=b"x" * 2**20).rc == 3

    def test_every_word_is_quoted(self) -> None:
        assert shell_arguments("settings", "put", "a b", "$(reboot);'") == (
            "shell",
            "-T",
            "settings put 'a b' '$(reboot);'\"'\"''",
        )
        with pytest.raises(ValueError, match="NUL"):
            shell_arguments("a\0b")

    def test_states(self) -> None:
        assert DeviceState("a", "device").online
        assert not DeviceState("a", "recovery").online


def program(directory: Path, text: str) -> str:
    path = directory / "adb"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


LINES = [
    "begin\t1",
    "prop\tro.serialno\tR58M1",
    "prop\tro.build.version.sdk\t31",
    "prop\tsys.boot_completed\t1",
    "user\tRUNNING_UNLOCKED",
    "lock_secure\tfalse",
    "sync\t\ttrue",
    "whitelist\tsystem,com.termux.boot,10190",
    "package\tcom.termux\t" + "a" * 64,
    "about\tcom.termux\tandroid.permission.DUMP: granted=true",
    "about\tcom.termux\tUser 0: ceDataInode=1 stopped=false notLaunched=false",
    "link\t3: eth0: <UP> link/ether 02:1a:9f:00:3c:07 brd ff:ff:ff:ff:ff:ff",
    "end\t1",
]


class TestAndroidFacts:
    def test_facts_are_parsed(self) -> None:
        facts = parse_android_facts("a greeting\n" + "\n".join(LINES))
        assert (facts.serial, facts.sdk, facts.screen_lock, facts.mac) == ("R58M1", 31, False, "02:1a:9f:00:3c:07")
        assert facts.sync_disabled
        assert facts.whitelist == {"com.termux.boot"}
        assert (facts.apps["com.termux"].opened, facts.apps["com.termux"].grants) == (True, frozenset({"DUMP"}))

    def test_incomplete_facts_are_refused(self) -> None:
        with pytest.raises(AdbError, match="facts script did not finish"):
            parse_android_facts("\n".join(LINES[:-1]))

    def test_a_serial_number_cannot_be_a_path(self) -> None:
        with pytest.raises(AdbError, match="invalid serial number"):
            parse_android_facts("\n".join(LINES).replace("R58M1", "../../etc"))

    @settings(max_examples=40)
    @given(noise=st.lists(st.text(max_size=60), max_size=8), data=st.data())
    def test_a_hostile_phone_fails_alone(self, noise: list[str], data: st.DataObject) -> None:
        keys = ["prop", "user", "disk_kb", "sync", "whitelist", "package", "about", "link", "run_as"]
        lines = [f"{data.draw(st.sampled_from(keys))}\t{text}" for text in noise]
        try:
            facts = parse_android_facts("\n".join([*LINES[:2], *lines, *LINES[2:]]))
        except PhoneError:
            return
        assert "\n" not in facts.device
        assert "\x1b" not in facts.device


class TestPlans:
    @pytest.mark.parametrize(("sdk", "lines"), [(28, 0), (30, 0), (31, 2), (32, 3)])
    def test_phantom_processes_by_android(self, sdk: int, lines: int) -> None:
        actions = PowerStep().plan(PhoneFacts(android_facts(sdk=sdk)), config())
        limits = [one for one in actions if "device_config" in one.adb[-1] or "phantom" in one.adb[-1]]
        assert len(limits) == lines

    def test_correct_settings_are_not_changed(self) -> None:
        right = {"stay_on_while_plugged_in": "7", "captive_portal_mode": "0", "auto_time": "1", "wifi_on": "0"}
        assert not SettingsStep().plan(PhoneFacts(android_facts(settings={**right, "mobile_data": "0"})), config())
        lines = SettingsStep().plan(PhoneFacts(android_facts(settings={**right, "mobile_data": "1"})), config())
        assert [line.adb[-1] for line in lines] == ["svc data disable", "settings put global mobile_data 0"]


def android_facts(**changes: Any) -> AndroidFacts:
    traits: dict[str, Any] = {
        "serial": "R58M1",
        "sdk": 29,
        "release": "10",
        "model": "SM-G975U",
        "abis": frozenset({"arm64-v8a"}),
        "boot_id": "1",
        "booted": True,
        "unlocked": True,
        "screen_lock": False,
    }
    return AndroidFacts(**{**traits, **changes})


def config() -> BootstrapConfig:
    return BootstrapConfig(CLUSTER, None, "ssh-ed25519 AAAA", None)  # type: ignore[arg-type]  # these steps install nothing
