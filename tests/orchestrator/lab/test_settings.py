"""`lab power` and `lab set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.inventory import load
from orchestrator.lab.client import request
from orchestrator.lab.network import LabNetwork
from orchestrator.lab.settings import apply_settings, set_power
from tests.labs import TestLab, eventually

pytestmark = pytest.mark.lab

PHONE = "p1-02"


def _address(lab: TestLab) -> str:
    return str(load(lab.inventory).phone(PHONE).address)


def _banner(lab: TestLab, timeout: float = 5.0) -> bytes:
    with LabNetwork(lab.directory).connect(_address(lab), 8022, timeout) as channel:
        return channel.recv(4)


def _host_keys(lab: TestLab) -> str:
    return lab.on(PHONE, "bash", "-c", "cat $PREFIX/etc/ssh/ssh_host_*_key.pub").stdout


def test_power_off_and_on_keeps_the_data(any_lab: TestLab) -> None:
    keys = _host_keys(any_lab)
    any_lab.on(PHONE, "bash", "-c", "echo kept > ~/note")
    any_lab.clusterctl("lab", "power", PHONE, "off")
    assert any_lab.phone(PHONE)["up"] is False
    with pytest.raises(OSError, match=r".+"):
        _banner(any_lab, timeout=1.0)
    with pytest.raises(ClusterctlError, match="switched off"):
        any_lab.on(PHONE, "true")
    any_lab.clusterctl("lab", "power", PHONE, "on")
    assert _banner(any_lab) == b"SSH-"
    assert any_lab.on(PHONE, "cat", "note").stdout == "kept\n"
    assert _host_keys(any_lab) == keys
    any_lab.on(PHONE, "rm", "note")


def test_a_phone_is_reachable_right_after_power_on(namespaced_lab: TestLab) -> None:
    """A connection attempt while the phone was off leaves an unresolved neighbor entry for three seconds."""

    def neighbor_entry(verb: str) -> str:
        return namespaced_lab.clusterctl("lab", "enter", "--", "ip", "neigh", verb, _address(namespaced_lab)).stdout

    set_power(namespaced_lab.directory, PHONE, "off")
    neighbor_entry("flush")
    with pytest.raises(OSError, match=r".+"):
        _banner(namespaced_lab, timeout=0.2)
    before = neighbor_entry("show")
    set_power(namespaced_lab.directory, PHONE, "on")
    assert "INCOMPLETE" in before
    assert neighbor_entry("show") == ""
    assert _banner(namespaced_lab) == b"SSH-"


def test_power_off_kills_every_process(any_lab: TestLab) -> None:
    any_lab.on(PHONE, "bash", "-c", "setsid sleep 5151 >/dev/null 2>&1 &")
    eventually(lambda: any_lab.on(PHONE, "pgrep", "-f", "^sleep 5151", check=False).returncode == 0)
    set_power(any_lab.directory, PHONE, "off")
    set_power(any_lab.directory, PHONE, "on")
    assert any_lab.on(PHONE, "pgrep", "-f", "^sleep 5151", check=False).returncode == 1


def test_power_on_is_idempotent(any_lab: TestLab) -> None:
    which = ("bash", "-c", "cat $PREFIX/var/run/sshd.pid")
    sshd = any_lab.on(PHONE, *which).stdout
    set_power(any_lab.directory, PHONE, "on")
    assert any_lab.on(PHONE, *which).stdout == sshd


def test_boot_scripts_run_instead_of_sshd(any_lab: TestLab) -> None:
    script = "mkdir -p ~/.termux/boot; printf '#!/bin/sh\\necho $PREFIX > ~/booted\\n' > ~/.termux/boot/00-start"
    any_lab.on(PHONE, "bash", "-c", script)
    any_lab.clusterctl("lab", "power", PHONE, "off")
    try:
        request(any_lab.directory, {"op": "power", "phone": PHONE, "state": "on"})  # does not wait for sshd
        eventually(lambda: any_lab.on(PHONE, "cat", "booted", check=False).stdout.endswith("/files/usr\n"))
        assert any_lab.phone(PHONE)["sshd"] is False
    finally:
        any_lab.on(PHONE, "rm", "-rf", ".termux", "booted")
        set_power(any_lab.directory, PHONE, "off")
        set_power(any_lab.directory, PHONE, "on")
    assert any_lab.phone(PHONE)["sshd"] is True


def test_a_new_host_key_at_the_same_address(any_lab: TestLab) -> None:
    before = _host_keys(any_lab)
    any_lab.clusterctl("lab", "set", PHONE, "hostkey=new")
    after = _host_keys(any_lab)
    assert len(after.splitlines()) == len(before.splitlines())
    assert not set(before.splitlines()) & set(after.splitlines())
    eventually(lambda: _banner(any_lab) == b"SSH-")


def test_a_full_disk(namespaced_lab: TestLab) -> None:
    write = ("bash", "-c", "head -c 1000000 /dev/zero > ~/big")
    apply_settings(namespaced_lab.directory, PHONE, ["disk=full"])
    failed = namespaced_lab.on(PHONE, *write, check=False)
    assert "No space left" in failed.stderr
    assert namespaced_lab.on("p1-01", "bash", "-c", "echo fine > ~/x && rm ~/x").returncode == 0
    apply_settings(namespaced_lab.directory, PHONE, ["disk=free"])
    namespaced_lab.on(PHONE, *write)
    namespaced_lab.on(PHONE, "rm", "big")


def test_an_unplugged_cable(namespaced_lab: TestLab) -> None:
    apply_settings(namespaced_lab.directory, PHONE, ["link=down"])
    with pytest.raises(OSError, match=r".+"):
        _banner(namespaced_lab, timeout=1.0)
    assert namespaced_lab.phone(PHONE)["sshd"] is True  # the phone itself still runs
    apply_settings(namespaced_lab.directory, PHONE, ["link=up"])
    assert _banner(namespaced_lab) == b"SSH-"


def test_reported_temperatures_and_battery(namespaced_lab: TestLab) -> None:
    namespaced_lab.clusterctl("lab", "set", PHONE, "thermal.cpu=71.5", "battery.percentage=20")
    zone = "/sys/class/thermal/thermal_zone0/temp"
    assert namespaced_lab.on(PHONE, "cat", zone).stdout == "71500\n"
    assert namespaced_lab.on("p1-01", "cat", zone).stdout != "71500\n"
    assert namespaced_lab.on(PHONE, "cat", "/system/scenario/battery.percentage").stdout == "20\n"
    apply_settings(namespaced_lab.directory, PHONE, ["thermal.cpu=38.2", "battery.percentage=96"])


def test_link_and_disk_faults_fail_on_loopback(loopback_lab: TestLab) -> None:
    for setting in ("link=down", "disk=full"):
        with pytest.raises(ClusterctlError, match="loopback"):
            apply_settings(loopback_lab.directory, PHONE, [setting])


@pytest.mark.parametrize("wrong", ["disk", "disk=half", "thermal.cpux=3", "thermal.cpu=hot", "=3", ""])
def test_an_invalid_setting_changes_nothing(loopback_lab: TestLab, wrong: str) -> None:
    scenario = loopback_lab.directory / "phones" / PHONE / "system" / "scenario"
    before = _contents(scenario)
    with pytest.raises(UsageError):
        apply_settings(loopback_lab.directory, PHONE, ["battery.percentage=11", wrong])
    assert _contents(scenario) == before


def test_an_unknown_phone_is_a_usage_error(loopback_lab: TestLab) -> None:
    for command in (("set", "p7-07", "link=down"), ("power", "p7-07", "off"), ("exec", "p7-07", "--", "true")):
        done = loopback_lab.clusterctl("lab", *command, check=False)
        assert done.returncode == 2
        assert "p7-07" in done.stderr


def _contents(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in directory.iterdir()}


def test_power_cycles_in_quick_succession(namespaced_lab: TestLab) -> None:
    """The kernel removes the network namespace of a dead phone with a delay, which must not break the next start."""
    for _ in range(5):
        for state in ("off", "on"):
            request(namespaced_lab.directory, {"op": "power", "phone": PHONE, "state": state})
    eventually(lambda: namespaced_lab.phone(PHONE)["sshd"] is True)
    assert _banner(namespaced_lab) == b"SSH-"
