"""Single checks, on simulated sysfs trees and programs."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phone_agent.contract.assumptions import Status, WiredNetwork
from phone_agent.device import interfaces
from phone_agent.device.system import SystemPaths
from phone_agent.selftest import compute, gpu, network, processor, storage, system, thermal_power, worker
from phone_agent.selftest.assumptions import checks


@pytest.fixture
def paths(tmp_path: Path) -> SystemPaths:
    made = SystemPaths(tmp_path / "sys", tmp_path / "proc", tmp_path / "bin")
    for folder in (made.cpus, made.proc / "self" / "attr", made.android):
        folder.mkdir(parents=True)
    return made


def snapdragon(paths: SystemPaths, allowed: str, package: Callable[[int], int] = lambda _: 0) -> None:
    for core in range(8):
        folder = paths.cpus / f"cpu{core}"
        (folder / "topology").mkdir(parents=True)
        (folder / "cpufreq").mkdir()
        (folder / "cpu_capacity").write_text("1024" if core > 3 else "300")
        (folder / "topology" / "physical_package_id").write_text(str(package(core)))
        (folder / "cpufreq" / "cpuinfo_max_freq").write_text("2419200")
        (folder / "cpufreq" / "scaling_cur_freq").write_text("1000000")
    (paths.proc / "self" / "status").write_text(f"Cpus_allowed_list:\t{allowed}\n")
    (paths.proc / "self" / "cgroup").write_text("3:cpuset:/background\n2:cpu:/\n")


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_cpuset_fails_in_the_background(paths: SystemPaths) -> None:
    snapdragon(paths, "0-2")
    assert processor.cores(paths).status is Status.OK
    found = processor.cpuset(paths)
    assert (found.status, found.evidence["cgroup"]) == (Status.FAILED, ["3:cpuset:/background"])
    assert "allowed cores: 0, 1, 2; big cores: 4, 5, 6, 7" in found.detail


def test_cpuset_is_ok_in_the_foreground(paths: SystemPaths) -> None:
    snapdragon(paths, "0-2,4-7")
    assert processor.cpuset(paths).status is Status.OK


@pytest.mark.parametrize(("package", "detail"), [(lambda _: 0, "same for all"), (lambda core: core // 4, "2 values")])
def test_both_package_layouts_are_ok(paths: SystemPaths, package: Callable[[int], int], detail: str) -> None:
    snapdragon(paths, "0-7", package)
    found = processor.packages(paths)
    assert found.status is Status.OK
    assert detail in found.detail


def test_unreadable_packages_are_unknown(paths: SystemPaths) -> None:
    snapdragon(paths, "0-7")
    (paths.cpus / "cpu5/topology/physical_package_id").unlink()
    assert processor.packages(paths).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ("u:r:untrusted_app_27:s0:c147,c256\0", Status.OK),
        ("u:r:runas_app:s0", Status.FAILED),
        ("unconfined", Status.UNKNOWN),
    ],
)
def test_selinux_domains(paths: SystemPaths, context: str, status: Status) -> None:
    (paths.proc / "self/attr/current").write_text(context)
    assert system.selinux(paths).status is status


def test_readable_files_that_android_should_hide_are_a_failure(paths: SystemPaths) -> None:
    for name in system.SHOWN:
        (paths.proc / name).write_text("1")
    assert system.hidden_files(paths).status is Status.OK
    (paths.proc / "stat").write_text("cpu 1 2 3")
    found = system.hidden_files(paths)
    assert (found.status, found.evidence["readable"]["stat"]) == (Status.FAILED, True)


def test_sysv_shm_that_kills_the_caller_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.sysv_shm().status in {Status.OK, Status.FAILED}  # depends on the kernel of this computer
    monkeypatch.setattr(system, "_get_segment", lambda *_: os.kill(os.getpid(), system.SIGSYS))
    found = system.sysv_shm()
    assert (found.status, found.evidence) == (Status.OK, {"how": "killed"}), found.detail


@pytest.mark.parametrize(("version", "status"), [("12", Status.OK), ("8.1.0", Status.FAILED), ("", Status.UNKNOWN)])
def test_android_versions(paths: SystemPaths, version: str, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    script(paths.android / "getprop", f"echo {version}")
    assert system.android(paths).status is status


def test_unreadable_thermometers(paths: SystemPaths) -> None:
    zone = paths.sys / "class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("cpu-1-0-usr")
    assert thermal_power.thermal_zones(paths).status is Status.FAILED
    (zone / "temp").write_text("38200")
    found = thermal_power.thermal_zones(paths)
    assert (found.status, found.evidence["zones"]) == (Status.OK, {"cpu-1-0-usr": 38200})
    script(paths.android / "dumpsys", "echo Permission Denial")
    found = thermal_power.thermal_service(paths)
    assert (found.status, found.evidence["output"]) == (Status.FAILED, ["Permission Denial"])


BATTERY = '{"plugged": "%s", "status": "%s", "current": -300000, "percentage": 60}'


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (BATTERY % ("PLUGGED_AC", "CHARGING"), Status.OK),
        (BATTERY % ("PLUGGED_USB", "DISCHARGING"), Status.FAILED),
        (BATTERY % ("UNPLUGGED", "NOT_CHARGING"), Status.FAILED),
        ("", Status.UNKNOWN),
    ],
)
def test_charging_through_the_adapter(
    answer: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "termux-battery-status", f"echo '{answer}'")
    (tmp_path / ".clusterctl").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert thermal_power.charging().status is status
    assert thermal_power.battery_status().status is (Status.OK if answer else Status.FAILED)


def test_stretched_sleeps_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    found = thermal_power.sleep_precision()
    assert (found.status, found.evidence["median_ms"]) == (Status.FAILED, 1000.0)


@pytest.mark.parametrize(
    ("vendor_first", "termux_first", "status"), [(1, 0, Status.OK), (1, 1, Status.FAILED), (0, 1, Status.FAILED)]
)
def test_opencl_library_order(
    vendor_first: int, termux_first: int, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = f"case $LD_LIBRARY_PATH in /vendor/*) n={vendor_first} ;; *) n={termux_first} ;; esac"
    script(tmp_path / "clinfo", f'{case}; [ $n = 0 ] || echo "Platform #0: QUALCOMM Snapdragon(TM)"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu.opencl().status is status


def test_hanging_clinfo_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "clinfo", "exec sleep 1000")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(gpu, "TIMEOUT_S", 0.5)
    assert gpu._clinfo("/nowhere") == (0, "no answer within 0.5 s")


def test_outbound_fails_if_the_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = network.outbound("127.0.0.1", port)()
    assert found.status is Status.FAILED
    assert "Connection refused" in found.detail


def test_congestion_control_is_read_from_a_socket() -> None:
    name = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    found = network.congestion_control()
    assert found.detail == f"TCP congestion control: {name}"
    assert (found.status is Status.OK) == (name in {"bic", "cubic", "reno"})


def test_wired_address_and_other_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"lo": "127.0.0.1", "eth0": "10.77.1.1", "wlan0": "192.168.1.5"}
    monkeypatch.setattr(interfaces, "addresses", lambda: addresses)
    assert network.wired_address("10.77.1.1", "eth0")().status is Status.OK
    assert network.wired_address("10.77.1.2", "eth0")().status is Status.FAILED
    assert network.wired_address("10.77.1.1", "usb0")().detail == "usb0 has no address"
    assert network.other_interfaces("eth0")().detail == "other interfaces: wlan0"
    assert network.other_interfaces("eth0")().status is Status.FAILED


def test_atomic_rename_and_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.atomic_rename().status is Status.OK
    assert storage.hard_links().evidence["how"] == "works"
    monkeypatch.delattr(os, "link")
    assert storage.hard_links().evidence["how"] == "absent"
    assert list((tmp_path / ".clusterctl").iterdir()) == []


def test_a_rename_that_is_not_atomic_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from phone_agent.contract import safetensors

    whole = safetensors.read
    monkeypatch.setenv("HOME", str(tmp_path))
    halves = np.concatenate([np.zeros(storage.VALUES // 2), np.ones(storage.VALUES // 2)]).astype(np.float32)
    monkeypatch.setattr(
        safetensors, "read", lambda path: safetensors.Content({"weights": halves}) if path.exists() else whole(path)
    )
    assert storage.atomic_rename().status is Status.FAILED


def test_disk_speed_is_not_measured_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(storage, "SPARE_MB", 10**9)
    assert storage.speed().status is Status.UNKNOWN


def test_a_missing_mpi4py_shows_its_build_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / compute.BUILD_LOG
    log.parent.mkdir(parents=True)
    log.write_text("clang: error: no such file\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(worker, "LIBRARY_VERSION", "import no_such_mpi4py")
    found = compute.mpi4py()
    assert (found.status, found.evidence["build"]) == (Status.FAILED, ["clang: error: no such file"])


def test_every_check_has_a_statement_and_a_time_limit() -> None:
    made = checks(WiredNetwork("10.77.1.1", "eth0", "10.77.0.1", 4000))
    names = [check.assumption.name for check in made]
    assert len(set(names)) == len(names)
    assert all(check.assumption.statement and 0 < check.limit_s <= 400 for check in made)
