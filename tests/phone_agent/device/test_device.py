"""Facts and telemetry on trees that imitate a Galaxy S10+ (4 + 3 + 1 cores), fully or partly readable."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phone_agent.device import affinity, battery, cpu, facts, interfaces, memory, telemetry, thermal
from phone_agent.device.system import SystemPaths
from tests.phone_agent.phones import Phone

LITTLE, MIDDLE, PRIME = 1_785_600, 2_419_200, 2_841_600
ZONES = {"cpu-0-0-usr": 41_500, "cpu-1-3-usr": 47_200, "gpuss-0-usr": 60_000, "battery": 31_000, "cpu-off": -273_000}

DEMOTED = """
import ctypes
from phone_agent.device import affinity
ctypes.CDLL(None).prctl(affinity.PR_SET_TIMERSLACK, ctypes.c_ulong(40_000_000), 0, 0, 0)  # as Android does
print(affinity.reduce_timer_slack())
"""


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def script(path: Path, text: str) -> None:
    write(path, f"#!{shutil.which('bash')}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def s10(tmp_path: Path) -> SystemPaths:
    paths = SystemPaths(tmp_path / "sys", tmp_path / "proc", tmp_path / "system" / "bin")
    for core, most in enumerate([LITTLE] * 4 + [MIDDLE] * 3 + [PRIME]):
        write(paths.cpus / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq", most)
        write(paths.cpus / f"cpu{core}" / "cpufreq" / "scaling_cur_freq", most // 2)
    write(paths.cpus / "cpufreq" / "policy0", "")
    for index, (kind, millidegrees) in enumerate(ZONES.items()):
        write(paths.sys / "class" / "thermal" / f"thermal_zone{index}" / "type", kind)
        write(paths.sys / "class" / "thermal" / f"thermal_zone{index}" / "temp", millidegrees)
    write(paths.proc / "meminfo", "MemTotal:        5687420 kB\nMemFree: 1 kB\nMemAvailable:    2734144 kB")
    write(paths.proc / "self" / "status", "Name:\tpython3\nCpus_allowed_list:\t0-2,4-7")
    return paths


def test_s10_cores(s10: SystemPaths) -> None:
    assert cpu.present(s10) == tuple(range(8))
    assert cpu.big_cores(s10) == (4, 5, 6, 7)
    assert cpu.allowed(s10) == (0, 1, 2, 4, 5, 6, 7)
    assert cpu.usable_cores(s10) == (4, 5, 6, 7)
    assert cpu.frequency_mhz(s10) == (1262, 2525)
    assert not affinity.is_demoted(s10)


def test_background_app_has_only_little_cores(s10: SystemPaths) -> None:
    write(s10.proc / "self" / "status", "Cpus_allowed_list:\t0-2")
    assert cpu.usable_cores(s10) == (0, 1, 2)
    assert affinity.is_demoted(s10)


def test_thread_count_is_capped(s10: SystemPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in affinity.BLAS_THREADS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, _cores: None)
    assert affinity.pin_to_big_cores(paths=s10) == 4
    for core in range(8, 100):
        write(s10.cpus / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq", PRIME)
    write(s10.proc / "self" / "status", "Cpus_allowed_list:\t0-99")
    assert affinity.pin_to_big_cores(paths=s10) == 64
    assert affinity.pin_to_big_cores(3, s10) == 3


def test_cpu_capacity_identifies_big_cores(s10: SystemPaths) -> None:
    for core in range(8):
        write(s10.cpus / f"cpu{core}" / "cpu_capacity", 1024 if core == 7 else 400)
    assert cpu.big_cores(s10) == (7,)


def test_the_hottest_cpu_zone_is_reported(s10: SystemPaths) -> None:
    assert thermal.from_zones(s10) == thermal.Temperature(47.2, "cpu-1-3-usr")


@pytest.mark.parametrize(("raw", "celsius"), [(47_200, 47.2), (472, 47.2), (47, 47.0)])
def test_thermal_zone_units(s10: SystemPaths, raw: int, celsius: float) -> None:
    shutil.rmtree(s10.sys / "class")
    write(s10.sys / "class" / "thermal" / "thermal_zone0" / "type", "tsens_tz_sensor1")
    write(s10.sys / "class" / "thermal" / "thermal_zone0" / "temp", raw)
    assert thermal.from_zones(s10) == thermal.Temperature(celsius, "tsens_tz_sensor1")


def test_thermal_service_is_used_if_zones_are_denied(s10: SystemPaths) -> None:
    shutil.rmtree(s10.sys / "class")
    report = "Temperature{mValue=36.6, mType=0, mName=CPU0, mStatus=0} Temperature{mValue=39.9, mType=3, mName=SKIN}"
    script(s10.android / "dumpsys", f'[ "$1" = thermalservice ] && echo "{report}"')
    assert thermal.read_temperature(lambda: None, s10) == thermal.Temperature(36.6, "CPU0")


def test_battery_temperature_is_the_last_resort(s10: SystemPaths) -> None:
    shutil.rmtree(s10.sys / "class")
    reading = thermal.read_temperature(lambda: {"temperature": 33.1, "status": "CHARGING"}, s10)
    assert reading == thermal.Temperature(33.1, "battery")
    assert thermal.read_temperature(dict, s10) is None


@pytest.fixture
def termux_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin" / battery.COMMAND


def test_battery_status_is_cached(termux_api: Path, tmp_path: Path) -> None:
    cache = tmp_path / "battery.json"
    script(termux_api, 'echo \'{"percentage": 81, "temperature": 29.5}\'')
    assert battery.read_battery(cache) == {"percentage": 81, "temperature": 29.5}
    script(termux_api, "exit 1")
    assert battery.read_battery(cache) == {"percentage": 81, "temperature": 29.5}
    write(cache, json.dumps({"epoch": time.time() - 100, "battery": {"percentage": 81}}))
    assert battery.read_battery(cache) is None


def test_hanging_battery_call_is_killed_with_its_helpers(
    termux_api: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(battery, "TIMEOUT_S", 2)
    script(termux_api, f"sleep 600 & echo $! > {tmp_path / 'helper'}; wait")
    assert battery.read_battery(tmp_path / "battery.json") is None
    helper = int((tmp_path / "helper").read_text())
    deadline = time.monotonic() + 30
    while running(helper):
        assert time.monotonic() < deadline, "the helper outlived the call"
        time.sleep(0.05)
    script(termux_api, "echo '{\"percentage\": 81}'")
    assert battery.read_battery(tmp_path / "battery.json") is None, "not asked again at once"


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("answer", ["", "null", "[1]", "{", "API not found"])
def test_invalid_battery_status(termux_api: Path, tmp_path: Path, answer: str) -> None:
    script(termux_api, f"echo '{answer}'")
    assert battery.read_battery(tmp_path / "battery.json") is None


def test_s10_telemetry(s10: SystemPaths, termux_api: Path, tmp_path: Path) -> None:
    script(termux_api, 'echo \'{"percentage": 81, "plugged": "PLUGGED_AC"}\'')
    report = telemetry.collect(s10, tmp_path / "battery.json")
    assert report["temperature_c"] == 47.2
    assert report["temperature_source"] == "cpu-1-3-usr"
    assert report["battery"]["plugged"] == "PLUGGED_AC"
    assert (report["frequency_mhz"], report["frequency_max_mhz"]) == (1262, 2525)
    assert report["memory_free_mb"] == 2799


def test_telemetry_without_readable_files(tmp_path: Path) -> None:
    paths = SystemPaths(tmp_path / "sys", tmp_path / "proc", tmp_path / "bin")
    report = telemetry.collect(paths, tmp_path / "no such folder" / "battery.json")
    unknown = ("temperature_c", "temperature_source", "battery", "frequency_mhz", "frequency_max_mhz", "memory_free_mb")
    assert {report[key] for key in unknown} == {None}
    assert report["epoch"] > 0
    known = facts.collect(paths)
    assert (known["android"], known["model"], known["memory_mb"], known["cpus_allowed"]) == (None, None, None, None)
    assert known["cpus"] == os.cpu_count()


def test_facts_include_the_android_model(s10: SystemPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        s10.android / "getprop", "case $1 in ro.product.model) echo SM-G975F;; ro.build.version.release) echo 12;; esac"
    )
    monkeypatch.setenv("PATH", os.environ["PATH"])
    known = facts.collect(s10)
    assert (known["model"], known["android"], known["big_cores"]) == ("SM-G975F", "12", (4, 5, 6, 7))


def test_interfaces_without_proc_or_netlink() -> None:
    assert interfaces.addresses()["lo"] == "127.0.0.1"
    assert interfaces.has_address("127.0.0.1") is True
    assert interfaces.has_address("192.0.2.123") is False
    assert interfaces.has_address("not an address") is None


def test_free_disk_of_a_missing_path(tmp_path: Path) -> None:
    assert memory.free_disk_mb(tmp_path / "nowhere") is None


def test_commands_print_one_json_document(phone: Phone) -> None:
    known = json.loads(phone.agent("facts").stdout)
    wanted = {"agent", "python", "numpy", "mpi4py", "openmpi", "arch", "android", "model", "cpus", "big_cores"}
    wanted |= {"memory_mb", "free_memory_mb", "free_disk_mb", "epoch", "interfaces"}
    assert wanted <= known.keys()
    assert known["openmpi"][0] == "4"
    report = json.loads(phone.agent("telemetry").stdout)
    assert report["run"] is None
    assert report["agent"] == known["agent"]


def test_peak_memory_excludes_the_parent_process() -> None:
    """The kernel's other figure, in getrusage, is of whatever ran in this process before."""
    large = bytearray(400_000_000)
    large[:: os.sysconf("SC_PAGE_SIZE")] = bytes([1]) * len(large[:: os.sysconf("SC_PAGE_SIZE")])
    ask = "from phone_agent.device.memory import peak_bytes; print(peak_bytes())"
    told = subprocess.run([sys.executable, "-c", ask], stdout=subprocess.PIPE, check=True, text=True)
    assert 1_000_000 < int(told.stdout) < len(large) < memory.peak_bytes()


def test_peak_memory_without_proc(s10: SystemPaths) -> None:
    assert memory.peak_bytes(s10) > 1_000_000
    write(s10.proc / "self" / "status", "VmHWM:\t   2048 kB")
    assert memory.peak_bytes(s10) == 2048 * 1024


def test_timer_slack_of_a_demoted_process_is_reduced() -> None:
    done = subprocess.run([sys.executable, "-c", DEMOTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["50000"]
