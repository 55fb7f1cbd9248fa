"""Single checks, on trees and programs that show what a phone might."""

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
from phone_agent.device.roots import Roots
from phone_agent.selftest import compute, gpu, network, processor, storage, system, thermal_power, worker
from phone_agent.selftest.assumptions import checks


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    made = Roots(tmp_path / "sys", tmp_path / "proc", tmp_path / "bin")
    for folder in (made.cpus, made.proc / "self" / "attr", made.android):
        folder.mkdir(parents=True)
    return made


def snapdragon(roots: Roots, allowed: str, package: Callable[[int], int] = lambda _: 0) -> None:
    for core in range(8):
        folder = roots.cpus / f"cpu{core}"
        (folder / "topology").mkdir(parents=True)
        (folder / "cpufreq").mkdir()
        (folder / "cpu_capacity").write_text("1024" if core > 3 else "300")
        (folder / "topology" / "physical_package_id").write_text(str(package(core)))
        (folder / "cpufreq" / "cpuinfo_max_freq").write_text("2419200")
        (folder / "cpufreq" / "scaling_cur_freq").write_text("1000000")
    (roots.proc / "self" / "status").write_text(f"Cpus_allowed_list:\t{allowed}\n")
    (roots.proc / "self" / "cgroup").write_text("3:cpuset:/background\n2:cpu:/\n")


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_phone_in_the_background_has_no_big_cores(roots: Roots) -> None:
    snapdragon(roots, "0-2")
    assert processor.cores(roots).status is Status.OK
    found = processor.cpuset(roots)
    assert (found.status, found.evidence["cgroup"]) == (Status.FAILED, ["3:cpuset:/background"])
    assert "may use cores 0, 1, 2; big ones are 4, 5, 6, 7" in found.told


def test_a_phone_in_the_foreground_has_them(roots: Roots) -> None:
    snapdragon(roots, "0-2,4-7")
    assert processor.cpuset(roots).status is Status.OK


@pytest.mark.parametrize(("package", "told"), [(lambda _: 0, "one for all"), (lambda core: core // 4, "2 values")])
def test_either_layout_of_packages_is_an_answer(roots: Roots, package: Callable[[int], int], told: str) -> None:
    snapdragon(roots, "0-7", package)
    found = processor.packages(roots)
    assert found.status is Status.OK
    assert told in found.told


def test_unreadable_packages_are_unknown(roots: Roots) -> None:
    snapdragon(roots, "0-7")
    (roots.cpus / "cpu5/topology/physical_package_id").unlink()
    assert processor.packages(roots).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ("u:r:untrusted_app_27:s0:c147,c256\0", Status.OK),
        ("u:r:runas_app:s0", Status.FAILED),
        ("unconfined", Status.UNKNOWN),
    ],
)
def test_selinux_domains(roots: Roots, context: str, status: Status) -> None:
    (roots.proc / "self/attr/current").write_text(context)
    assert system.selinux(roots).status is status


def test_what_android_should_hide_and_does_not(roots: Roots) -> None:
    for name in system.SHOWN:
        (roots.proc / name).write_text("1")
    assert system.hidden_files(roots).status is Status.OK
    (roots.proc / "stat").write_text("cpu 1 2 3")
    found = system.hidden_files(roots)
    assert (found.status, found.evidence["readable"]["stat"]) == (Status.FAILED, True)


def test_a_kernel_that_has_system_v_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.system_v().status in {Status.OK, Status.FAILED}  # this computer's own
    monkeypatch.setattr(system, "_get_segment", lambda *_: os.kill(os.getpid(), system.SIGSYS))
    found = system.system_v()
    assert (found.status, found.evidence) == (Status.OK, {"how": "killed"}), found.told


@pytest.mark.parametrize(("version", "status"), [("12", Status.OK), ("8.1.0", Status.FAILED), ("", Status.UNKNOWN)])
def test_android_versions(roots: Roots, version: str, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    script(roots.android / "getprop", f"echo {version}")
    assert system.android(roots).status is status


def test_thermometers_that_cannot_be_read(roots: Roots) -> None:
    zone = roots.sys / "class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("cpu-1-0-usr")
    assert thermal_power.thermal_zones(roots).status is Status.FAILED
    (zone / "temp").write_text("38200")
    found = thermal_power.thermal_zones(roots)
    assert (found.status, found.evidence["zones"]) == (Status.OK, {"cpu-1-0-usr": 38200})
    script(roots.android / "dumpsys", "echo Permission Denial")
    found = thermal_power.thermal_service(roots)
    assert (found.status, found.evidence["said"]) == (Status.FAILED, ["Permission Denial"])


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
def test_power_through_the_adapter(
    answer: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "termux-battery-status", f"echo '{answer}'")
    (tmp_path / ".clusterctl").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert thermal_power.charging().status is status
    assert thermal_power.battery_answers().status is (Status.OK if answer else Status.FAILED)


def test_stretched_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    found = thermal_power.sleeping()
    assert (found.status, found.evidence["median_ms"]) == (Status.FAILED, 1000.0)


@pytest.mark.parametrize(
    ("vendor_first", "ours_first", "status"), [(1, 0, Status.OK), (1, 1, Status.FAILED), (0, 1, Status.FAILED)]
)
def test_the_order_of_opencls_libraries(
    vendor_first: int, ours_first: int, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = f"case $LD_LIBRARY_PATH in /vendor/*) n={vendor_first} ;; *) n={ours_first} ;; esac"
    script(tmp_path / "clinfo", f'{case}; [ $n = 0 ] || echo "Platform #0: QUALCOMM Snapdragon(TM)"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu.opencl().status is status


def test_opencl_that_hangs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "clinfo", "exec sleep 1000")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(gpu, "PATIENCE_S", 0.5)
    assert gpu._clinfo("/nowhere") == (0, "no answer within 0.5 s")


def test_calls_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = network.calls_out("127.0.0.1", port)()
    assert found.status is Status.FAILED
    assert "Connection refused" in found.told


def test_how_tcp_finds_its_rate_is_told_by_a_socket() -> None:
    way = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    found = network.congestion()
    assert found.told == f"TCP finds its rate by {way}"
    assert (found.status is Status.OK) == (way in {"bic", "cubic", "reno"})


def test_the_wired_address_and_other_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"lo": "127.0.0.1", "eth0": "10.77.1.1", "wlan0": "192.168.1.5"}
    monkeypatch.setattr(interfaces, "addresses", lambda: told)
    assert network.has_wire("10.77.1.1", "eth0")().status is Status.OK
    assert network.has_wire("10.77.1.2", "eth0")().status is Status.FAILED
    assert network.has_wire("10.77.1.1", "usb0")().told == "usb0 has no address"
    assert network.other_ways("eth0")().told == "besides eth0 there are wlan0"
    assert network.other_ways("eth0")().status is Status.FAILED


def test_files_on_this_computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.replacing().status is Status.OK
    assert storage.hard_links().evidence["how"] == "works"
    monkeypatch.delattr(os, "link")
    assert storage.hard_links().evidence["how"] == "absent"
    assert list((tmp_path / ".clusterctl").iterdir()) == []


def test_files_that_are_not_renamed_at_once_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from phone_agent.contract import safetensors

    whole = safetensors.read
    monkeypatch.setenv("HOME", str(tmp_path))
    halves = np.concatenate([np.zeros(storage.VALUES // 2), np.ones(storage.VALUES // 2)]).astype(np.float32)
    monkeypatch.setattr(
        safetensors, "read", lambda path: safetensors.Content({"weights": halves}) if path.exists() else whole(path)
    )
    assert storage.replacing().status is Status.FAILED


def test_too_full_a_disk_is_not_filled_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(storage, "SPARE_MB", 10**9)
    assert storage.speed().status is Status.UNKNOWN


def test_a_missing_mpi4py_shows_what_its_build_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / compute.BUILD_LOG
    log.parent.mkdir(parents=True)
    log.write_text("clang: error: no such file\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(worker, "LIBRARY_VERSION", "import no_such_mpi4py")
    found = compute.mpi4py()
    assert (found.status, found.evidence["build"]) == (Status.FAILED, ["clang: error: no such file"])


def test_every_check_says_what_it_settles_and_is_bounded() -> None:
    made = checks(WiredNetwork("10.77.1.1", "eth0", "10.77.0.1", 4000))
    names = [check.belief.name for check in made]
    assert len(set(names)) == len(names)
    assert all(check.belief.settles and 0 < check.limit_s <= 400 for check in made)
