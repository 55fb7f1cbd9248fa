"""Cores: which exist, which are fast, which this process may use, how fast they run now."""

from __future__ import annotations

import os
import re
from statistics import mean

from phone_agent.contract.files import read_int, read_text
from phone_agent.device.roots import REAL, Roots


def parse_list(text: str) -> tuple[int, ...]:
    """The kernel's list form: '0-2,4' -> (0, 1, 2, 4)."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return tuple(cores)


def present(roots: Roots = REAL) -> tuple[int, ...]:
    names = (path.name for path in roots.cpus.glob("cpu[0-9]*"))
    found = sorted(int(name[3:]) for name in names if name[3:].isdigit())
    return tuple(found) or tuple(range(os.cpu_count() or 1))


def allowed(roots: Roots = REAL) -> tuple[int, ...] | None:
    """The cores Android lets this process run on: a demoted app gets the little ones only."""
    status = read_text(roots.proc / "self" / "status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*([0-9,-]+)$", status, re.MULTILINE)
    return parse_list(match[1]) if match else None


def big_cores(roots: Roots = REAL) -> tuple[int, ...]:
    """All cores faster than the slowest kind; every core when there is one kind only."""
    cores = present(roots)
    speed = {core: _speed(core, roots) for core in cores}
    slowest = min(speed.values())
    return tuple(core for core in cores if speed[core] > slowest) or cores


def usable_cores(roots: Roots = REAL) -> tuple[int, ...]:
    """Where to compute: big cores this process may use, else whatever it may use."""
    return big_among(allowed(roots) or present(roots), roots)


def big_among(permitted: tuple[int, ...], roots: Roots = REAL) -> tuple[int, ...]:
    big = big_cores(roots)
    return tuple(core for core in permitted if core in big) or permitted


def frequency_mhz(roots: Roots = REAL) -> tuple[int | None, int | None]:
    """Now and at most, averaged over the big cores: their ratio shows throttling where no thermometer is readable."""
    folders = [roots.cpus / f"cpu{core}" / "cpufreq" for core in big_cores(roots)]
    now = [read_int(folder / "scaling_cur_freq") for folder in folders]
    most = [read_int(folder / "cpuinfo_max_freq") for folder in folders]
    return _mean_mhz(now), _mean_mhz(most)


def _mean_mhz(kilohertz: list[int | None]) -> int | None:
    known = [value for value in kilohertz if value]
    return round(mean(known) / 1000) if known else None


def _speed(core: int, roots: Roots) -> int:
    folder = roots.cpus / f"cpu{core}"
    return read_int(folder / "cpu_capacity") or read_int(folder / "cpufreq" / "cpuinfo_max_freq") or 0
