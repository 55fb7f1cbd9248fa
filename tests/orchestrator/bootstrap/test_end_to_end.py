"""From a new phone to one that accepts our login: real adb, real ssh, a simulated Android."""

from __future__ import annotations

import getpass
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.bootstrap.bootstrapper import BootstrapOptions, bootstrap
from orchestrator.bootstrap.report import BootstrapReport, Event, Waiting
from orchestrator.fleet import HostKeys
from orchestrator.inventory import load
from orchestrator.inventory.model import Cluster
from orchestrator.paths import ClusterState
from orchestrator.provision.engine import StepStatus
from orchestrator.provision.resources import read_text
from orchestrator.provision.ssh_keys import key_body
from tests.labs import CLUSTERCTL
from tests.orchestrator.bootstrap.android import Android
from tests.orchestrator.bootstrap.conftest import Bench, NewPhone

INVENTORY = """\
# My rack.
cluster: desk
network: {{subnet: 10.77.0.0/16, host: 10.77.0.1}}
ssh: {{user: {user}}}
switches:
  sw1:
    ports: 8
    phones:
      - {{ports: 1-4, name: "p{{port}}", address: "10.77.1.{{port}}"}}  # left
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY.format(user=getpass.getuser()))
    return path


class Desk:
    """A user with an inventory."""

    def __init__(self, bench: Bench, inventory: Path) -> None:
        self.inventory = inventory
        self.options = BootstrapOptions(bench.apks, upstream=bench.upstream, wait=120.0)
        self.events: list[Event] = []
        self._tasks: dict[str, Callable[[], object]] = {}

    @property
    def cluster(self) -> Cluster:
        return load(self.inventory)

    @property
    def state(self) -> ClusterState:
        return ClusterState("desk")

    def bootstrap(self, *phones: Android, **changes: Any) -> BootstrapReport:
        """`phones` become p1, p2, … unless `pairs` is given."""
        pairs = tuple(f"{phone.adbd.name}=p{number}" for number, phone in enumerate(phones, start=1))
        options = replace(self.options, **{"pairs": pairs, **changes})
        self.events = []
        return bootstrap(self.cluster, self.cluster.phones, self.state, options, self._watch)

    def on_wait(self, words: str, do: Callable[[], object]) -> None:
        """What the user does, once, when these words are reported."""
        self._tasks[words] = do

    def _watch(self, event: Event) -> None:
        self.events.append(event)
        for words in list(self._tasks):
            if isinstance(event, Waiting) and words in event.reason:
                self._tasks.pop(words)()

    @property
    def waits(self) -> set[str]:
        return {event.reason for event in self.events if isinstance(event, Waiting)}


@pytest.fixture
def desk(on_bench: Bench, inventory: Path) -> Desk:
    return Desk(on_bench, inventory)


def failure(report: BootstrapReport) -> tuple[str, str, str]:
    (phone,) = report.failed
    assert phone.failure
    return phone.failure.step, phone.failure.error or "", phone.failure.remedy or ""


def test_a_full_bootstrap_and_a_second_one_that_changes_nothing(desk: Desk, new_phone: NewPhone) -> None:
    phone = new_phone(sdk=31, accepts=False, unpack_polls=2)
    phone.put("link", "3: eth0: <BROADCAST> mtu 1500 state UP link/ether 02:1a:9f:00:3c:07 brd ff:ff:ff:ff:ff:ff")
    desk.on_wait("accept the dialog on the phone's screen", lambda: setattr(phone, "accepts", True))

    report = desk.bootstrap(phone)

    assert report.ok, report.as_json()
    assert any("accept the dialog on the phone's screen" in what for what in desk.waits)
    assert {"Termux is unpacking its programs", "Android is restarting", "Termux:Boot is starting sshd"} <= desk.waits
    assert not any("plug the phone" in what for what in desk.waits)
    _check_files(phone, desk)
    _check_settings(phone)
    _check_records(phone, desk)
    assert phone.reboots == 1
    assert phone.reversed_ports == []
    assert [one.name for one in report.remaining] == ["p2", "p3", "p4"]

    text, calls = desk.inventory.read_text(), len(phone.calls)
    again = desk.bootstrap()  # by the serial number in the inventory
    assert {step.status for step in again.phones[0].steps} == {StepStatus.OK}
    assert desk.inventory.read_text() == text
    assert not [call for call in phone.calls[calls:] if not call.split()[1].startswith(("get", "path", "is_"))]
    assert phone.reboots == 1


def _check_files(phone: Android, desk: Desk) -> None:
    """Byte for byte."""
    home, usr = phone.files / "home", phone.files / "usr"
    public = desk.state.host_key.with_suffix(".pub").read_text().strip()
    authorized = home / ".ssh/authorized_keys"
    assert authorized.read_text().splitlines()[1:-1] == [public]
    boot = home / ".termux/boot/00-clusterctl"
    assert boot.read_text() == read_text("boot.sh")
    drop_in = usr / "etc/ssh/sshd_config.d/50-clusterctl.conf"
    exempt = read_text("sshd_config-9.8").replace("@PEERS@", "10.77.0.0/16")
    assert drop_in.read_text() == read_text("sshd_config") + exempt
    assert [path.stat().st_mode & 0o777 for path in (authorized, boot, drop_in)] == [0o600, 0o700, 0o600]
    assert (usr / "apt.log").read_text().split("\n")[:3] == [
        "apt-get update",
        "apt-get dist-upgrade",
        "apt-get install",
    ]
    assert not list((usr / "tmp").iterdir())


def _check_settings(phone: Android) -> None:
    expected = {
        "stay_on_while_plugged_in": "7",
        "captive_portal_mode": "0",
        "auto_time": "1",
        "ntp_server": "10.77.0.1",
        "wifi_on": "0",
        "mobile_data": "0",
    }
    assert {name: phone.get(f"settings/{name}") for name in expected} == expected
    assert phone.get("device_config/activity_manager.max_phantom_processes") == "2147483647"
    assert phone.get("device_config/sync") == "persistent"
    exempt = {line.split(",")[1] for line in phone.get("whitelist").splitlines()}
    assert {"com.termux", "com.termux.api", "com.termux.boot"} <= exempt
    grants = {line.rpartition(".")[2] for line in phone.get("apps/com.termux/grants").splitlines()}
    assert grants == {"DUMP", "READ_LOGS", "WRITE_SECURE_SETTINGS", "PACKAGE_USAGE_STATS"}
    assert "am start -n com.termux.boot/com.termux.boot.BootActivity" in phone.calls
    assert "am start -n com.termux.api/com.termux.api.activities.TermuxAPIMainActivity" in phone.calls


def _check_records(phone: Android, desk: Desk) -> None:
    public = (phone.files / "usr/etc/ssh/ssh_host_ed25519_key.pub").read_text()
    learned = desk.cluster.phone("p1")
    assert (learned.serial, learned.mac, learned.host_key) == (phone.serial, "02:1a:9f:00:3c:07", key_body(public))
    text = desk.inventory.read_text()
    assert text.startswith("# My rack.\n")
    assert "      - ports: 1-4  # left\n" in text
    pinned = HostKeys(desk.state.known_hosts).pinned(replace(learned, host_key=None))
    assert pinned
    assert f"{pinned.kind} {pinned.blob}" == key_body(public)
    journal = json.loads((desk.state.root / f"bootstrap/{phone.serial}.json").read_text())
    assert (journal["phone"], journal["host_key"], bool(journal["finished"])) == ("p1", key_body(public), True)


def test_an_unplugged_phone_continues_in_the_next_run(desk: Desk, new_phone: NewPhone) -> None:
    phone = new_phone(unpack_polls=3)
    desk.on_wait("Termux is unpacking its programs", phone.adbd.unplug)
    step, error, remedy = failure(desk.bootstrap(phone))
    assert (step, "disconnected from USB" in error) == ("unpack", True)
    assert "it continues where it stopped" in remedy
    assert desk.cluster.phone("p1").serial is None  # an unfinished phone is not recorded

    installed = phone.get("apps/com.termux/grants")
    phone.adbd.plug_in()
    report = desk.bootstrap(phone)
    assert report.ok, report.as_json()
    statuses = {step.step: step.status for step in report.phones[0].steps}
    assert statuses["apps"] is statuses["settings"] is statuses["power"] is StepStatus.OK
    assert statuses["packages"] is statuses["restart"] is StepStatus.CHANGED
    assert phone.get("apps/com.termux/grants") == installed
    assert desk.cluster.phone("p1").serial == phone.serial


def test_a_failed_phone_does_not_affect_the_other(desk: Desk, new_phone: NewPhone) -> None:
    """In parallel: a Play Store Termux on Android 9, and an adb without streaming on Android 11."""
    refusal = (
        "INSTALL_FAILED_UPDATE_INCOMPATIBLE: Package com.termux signatures do not match previously installed version"
    )
    bad, good = new_phone(sdk=28, refusals={"com.termux": refusal}), new_phone(sdk=30, features="shell_v2,stat_v2")
    report = desk.bootstrap(bad, good)
    step, error, remedy = failure(report)
    assert step == "apps"
    assert "from another source (the Play Store, F-Droid) is already installed" in error
    assert f"adb -s {bad.adbd.name} uninstall com.termux" in remedy
    assert [phone.serial for phone in desk.cluster][:2] == [None, good.serial]
    assert not [call for call in good.calls if call.startswith("device_config put")]  # not needed on Android 11
    assert json.loads(desk.state.failed.read_text()) == ["p1"]
    assert [one.name for one in report.remaining] == ["p1", "p3", "p4"]


@pytest.mark.slow
def test_a_phone_that_does_not_start_sshd_fails_in_the_restart_step(
    desk: Desk, new_phone: NewPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.bootstrap.steps.restart._SSHD_SECONDS", 1.0)
    phone = new_phone()
    desk.on_wait("Android is restarting", lambda: (phone.files / "home/.ssh/authorized_keys").write_text("# wiped\n"))
    step, error, remedy = failure(desk.bootstrap(phone))
    assert (step, "does not accept a login" in error) == ("restart", True)
    assert "boot.log" in remedy
    assert desk.cluster.phone("p1").host_key is None


@pytest.mark.parametrize(
    ("name", "value", "task"),
    [
        ("lock_secure", "true", "remove the screen lock"),
        ("user_state", "RUNNING_LOCKED", "unlock the phone once"),
        ("props/sys.boot_completed", "", "Android is still starting"),
    ],
)
def test_manual_steps_are_reported(desk: Desk, new_phone: NewPhone, name: str, value: str, task: str) -> None:
    phone = new_phone()
    phone.put(name, value)
    step, _, remedy = failure(desk.bootstrap(phone, wait=0.0))
    assert step == "inspect"
    assert task in remedy
    assert "apps" not in {path.name for path in phone.root.iterdir()}


def test_unsupported_phones_are_refused(desk: Desk, new_phone: NewPhone) -> None:
    phone = new_phone()
    phone.put("free_kb", "900000")
    assert "900 MB of storage free" in failure(desk.bootstrap(phone))[1]
    phone.put("props/ro.build.version.sdk", "26")
    assert "older than 9" in failure(desk.bootstrap(phone))[1]
    phone.put("props/ro.build.version.sdk", "30")
    phone.put("props/ro.product.cpu.abilist", "x86_64")
    assert "termux.apk is for arm64-v8a" in failure(desk.bootstrap(phone))[1]
    assert phone.calls == [call for call in phone.calls if call.split()[1].startswith(("get", "path", "is_"))]


def test_dry_run_json_and_refusals_of_the_command(desk: Desk, new_phone: NewPhone, on_bench: Bench) -> None:
    """A dry run prints every adb line and changes nothing; an unknown phone is refused; --json is one document."""
    phone = new_phone()

    def clusterctl(*flags: str) -> subprocess.CompletedProcess[str]:
        command = [*CLUSTERCTL, "bootstrap", "-i", str(desk.inventory), "--apks", str(on_bench.apks), *flags]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    refused = clusterctl()
    assert refused.returncode == 2
    assert f"the inventory has no phone with these serial numbers: {phone.serial}" in refused.stderr
    before = desk.inventory.read_text()
    planned = clusterctl("--dry-run", "--assign-free", "--limit", "p3", "--serial", phone.serial)
    assert planned.returncode == 0, planned.stderr
    assert f"p3 (sw1:3) is {phone.serial}, SM-G975U, Android 10" in planned.stdout
    line = f"adb -s {phone.adbd.name} shell -T 'settings put global captive_portal_mode 0'"
    assert line in planned.stdout
    document = json.loads(clusterctl("--dry-run", "--json", "--assign", f"{phone.serial}=sw1:2").stdout)
    assert document["phones"][0]["phone"] == "p2"
    assert ["adb", "-s", phone.adbd.name, "reboot"] in document["phones"][0]["adb"]
    assert (desk.inventory.read_text(), phone.reboots) == (before, 0)
    assert not [call for call in phone.calls if "put" in call.split() or call.startswith(("svc", "am start"))]
