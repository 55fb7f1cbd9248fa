"""The cores: which there are, which of them we get, whether threads stay where they are put."""

from __future__ import annotations

import os
import re
import time
from statistics import median
from typing import Any

from phone_agent.contract.assumptions import Found, failed, judged, ok, unknown
from phone_agent.contract.files import read_int, read_text
from phone_agent.device import cpu
from phone_agent.device.roots import REAL, Roots

HANDOVERS = 2000
RUNNING_ON = 36  # field of /proc/PID/stat after the name: the core it ran on last


def cores(roots: Roots = REAL) -> Found:
    present, big = cpu.present(roots), cpu.big_cores(roots)
    told = {core: _of(core, roots, "cpu_capacity", "cpufreq/cpuinfo_max_freq") for core in present}
    expected = len(present) == 8 and big == (4, 5, 6, 7)
    return judged(expected, f"{len(present)} cores, big ones: {_listed(big)}", cores=told)


def packages(roots: Roots = REAL) -> Found:
    """Either answer is one: what matters is that nobody lets Open MPI bind by it."""
    ids = {core: read_int(roots.cpus / f"cpu{core}/topology/physical_package_id") for core in cpu.present(roots)}
    if None in ids.values():
        return unknown("physical_package_id cannot be read for every core", ids=ids)
    clusters = len(set(ids.values()))
    what = "is one for all cores" if clusters == 1 else f"has {clusters} values: it names clusters"
    return ok(f"physical_package_id {what}", ids=ids)


def cpuset(roots: Roots = REAL) -> Found:
    groups = (read_text(roots.proc / "self" / "cgroup") or "").splitlines()
    mine = [line for line in groups if "cpuset" in line]
    allowed, big = cpu.allowed(roots), cpu.big_cores(roots)
    if allowed is None:
        return unknown("Cpus_allowed_list cannot be read", cgroup=mine)
    told = f"may use cores {_listed(allowed)}; big ones are {_listed(big)}"
    return judged(set(big) <= set(allowed), told, cgroup=mine, allowed=allowed)


def affinity(roots: Roots = REAL) -> Found:
    """Asked for, confirmed by the kernel, and seen where this process really ran."""
    usable = cpu.usable_cores(roots)
    for core in usable:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            return failed(f"core {core}: {error.strerror}")
        if os.sched_getaffinity(0) != {core}:
            return failed(f"core {core} was asked for, {sorted(os.sched_getaffinity(0))} were given")
        _work(0.02)
        if (ran := _ran_on(roots)) not in {core, None}:
            return failed(f"pinned to core {core}, ran on core {ran}")
    return ok(f"runs on each of the cores {_listed(usable)} when told to")


def frequency(roots: Roots = REAL) -> Found:
    names = ("cpufreq/scaling_cur_freq", "cpufreq/cpuinfo_max_freq", "cpufreq/scaling_max_freq")
    told = {core: _of(core, roots, *names) for core in cpu.present(roots)}
    readable = {name: all(each[name] for each in told.values()) for name in names}
    now, most = cpu.frequency_mhz(roots)
    return judged(
        readable[names[0]] and readable[names[1]], f"big cores at {now} of {most} MHz", readable=readable, khz=told
    )


def threads(roots: Roots = REAL) -> Found:
    """As many as there are cores to compute on, parked on a futex and woken."""
    from phone_agent.core.thread_pool import Program, ThreadPool

    pool = ThreadPool(len(cpu.usable_cores(roots)))
    try:
        empty, taken = Program.of([]), []
        for _ in range(HANDOVERS):
            started = time.perf_counter()
            pool.run(empty)
            taken.append(time.perf_counter() - started)
    finally:
        pool.close()
    told = f"threads: {pool.threads}; they take work in {median(taken) * 1e6:.0f} microseconds"
    return ok(told, threads=pool.threads, median_us=round(median(taken) * 1e6, 1), worst_us=round(max(taken) * 1e6))


def speed(roots: Roots = REAL) -> Found:
    """Figures for the planner; whatever they are, they are the answer."""
    from phone_agent.bench.kernels import copy_gbs, peak_gflops
    from phone_agent.core.thread_pool import ThreadPool

    usable = cpu.usable_cores(roots)
    os.sched_setaffinity(0, usable)
    peaks = {}
    for count in sorted({1, len(usable)}):
        pool = ThreadPool(count)
        try:
            peaks[count] = round(peak_gflops(pool, 0.2), 1)
        finally:
            pool.close()
    copied = round(copy_gbs(floats=8 << 20), 1)
    each = ", ".join(f"{peak:g} GFLOPS on {count}" for count, peak in peaks.items())
    return ok(f"cores computing: {each}; copies {copied:g} GB/s", gflops=peaks, copy_gbs=copied)


def _of(core: int, roots: Roots, *names: str) -> dict[str, int | None]:
    return {name: read_int(roots.cpus / f"cpu{core}" / name) for name in names}


def _work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(1000))


def _ran_on(roots: Roots) -> int | None:
    fields = re.split(r"\) ", read_text(roots.proc / "self" / "stat") or "")[-1].split()
    return int(fields[RUNNING_ON]) if len(fields) > RUNNING_ON else None


def _listed(numbers: Any) -> str:
    return ", ".join(map(str, numbers)) or "none"
