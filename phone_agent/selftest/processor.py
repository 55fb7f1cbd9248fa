"""Checks of the cores: topology, cpuset, affinity, frequency and speed."""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from statistics import median
from typing import Any

from phone_agent.contract.assumptions import CheckResult, failed, ok, ok_if, unknown
from phone_agent.contract.files import read_int, read_text
from phone_agent.device import cpu
from phone_agent.device.step_timer import time_steps
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

DISPATCHES = 2000
LAST_CPU = 36  # field of /proc/PID/stat after the name: the core that the process last ran on


def cores(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    present, big = cpu.present(paths), cpu.big_cores(paths)
    values = {core: _sysfs_values(core, paths, "cpu_capacity", "cpufreq/cpuinfo_max_freq") for core in present}
    expected = len(present) == 8 and big == (4, 5, 6, 7)
    return ok_if(expected, f"{len(present)} cores, big: {_listed(big)}", cores=values)


def packages(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    """Both layouts are fine as long as Open MPI does not bind by package."""
    ids = {core: read_int(paths.cpus / f"cpu{core}/topology/physical_package_id") for core in cpu.present(paths)}
    if None in ids.values():
        return unknown("physical_package_id is not readable for every core", ids=ids)
    clusters = len(set(ids.values()))
    what = "is the same for all cores" if clusters == 1 else f"has {clusters} values: it identifies clusters"
    return ok(f"physical_package_id {what}", ids=ids)


def cpuset(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    groups = (read_text(paths.proc / "self" / "cgroup") or "").splitlines()
    mine = [line for line in groups if "cpuset" in line]
    allowed, big = cpu.allowed(paths), cpu.big_cores(paths)
    if allowed is None:
        return unknown("Cpus_allowed_list is not readable", cgroup=mine)
    detail = f"allowed cores: {_listed(allowed)}; big cores: {_listed(big)}"
    return ok_if(set(big) <= set(allowed), detail, cgroup=mine, allowed=allowed)


def affinity(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    """Pins this process to each core, and checks the mask and the core that it really ran on."""
    usable = cpu.usable_cores(paths)
    for core in usable:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            return failed(f"core {core}: {error.strerror}")
        if os.sched_getaffinity(0) != {core}:
            return failed(f"pinned to core {core}, but the affinity mask is {sorted(os.sched_getaffinity(0))}")
        _spin(0.02)
        if (ran := _last_cpu(paths)) not in {core, None}:
            return failed(f"pinned to core {core}, but ran on core {ran}")
    return ok(f"can be pinned to each of the cores {_listed(usable)}")


def frequency(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    names = ("cpufreq/scaling_cur_freq", "cpufreq/cpuinfo_max_freq", "cpufreq/scaling_max_freq")
    values = {core: _sysfs_values(core, paths, *names) for core in cpu.present(paths)}
    readable = {name: all(each[name] for each in values.values()) for name in names}
    now, most = cpu.frequency_mhz(paths)
    return ok_if(
        readable[names[0]] and readable[names[1]], f"big cores at {now} of {most} MHz", readable=readable, khz=values
    )


def threads(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    """Dispatch latency of a thread pool with one thread per usable core, parked on a futex."""
    from phone_agent.core.thread_pool import Program, ThreadPool

    with closing(ThreadPool(len(cpu.usable_cores(paths)))) as pool:
        empty = Program.of([])
        seconds = time_steps(lambda: pool.run(empty), DISPATCHES, warm_up=0)
    detail = f"{pool.threads} threads start work in {median(seconds) * 1e6:.0f} microseconds"
    return ok(
        detail, threads=pool.threads, median_us=round(median(seconds) * 1e6, 1), worst_us=round(max(seconds) * 1e6)
    )


def speed(paths: SystemPaths = DEFAULT_PATHS) -> CheckResult:
    """Measurements for the planner; every value is fine."""
    from phone_agent.bench.kernels import copy_gbs, peak_gflops
    from phone_agent.core.thread_pool import ThreadPool

    usable = cpu.usable_cores(paths)
    os.sched_setaffinity(0, usable)
    peaks = {}
    for count in sorted({1, len(usable)}):
        with closing(ThreadPool(count)) as pool:
            peaks[count] = round(peak_gflops(pool, 0.2), 1)
    copied = round(copy_gbs(floats=8 << 20), 1)
    each = ", ".join(f"{peak:g} GFLOPS on {count} cores" for count, peak in peaks.items())
    return ok(f"{each}; memory copy {copied:g} GB/s", gflops=peaks, copy_gbs=copied)


def _sysfs_values(core: int, paths: SystemPaths, *names: str) -> dict[str, int | None]:
    return {name: read_int(paths.cpus / f"cpu{core}" / name) for name in names}


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(1000))


def _last_cpu(paths: SystemPaths) -> int | None:
    fields = re.split(r"\) ", read_text(paths.proc / "self" / "stat") or "")[-1].split()
    return int(fields[LAST_CPU]) if len(fields) > LAST_CPU else None


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, numbers)) or "none"
