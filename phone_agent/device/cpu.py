"""CPU cores: topology, affinity and frequency."""

from __future__ import annotations

import os
import re

from phone_agent.contract.files import read_int, read_text
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths


def parse_list(text: str) -> tuple[int, ...]:
    """Parses the list format of the kernel: '0-2,4' -> (0, 1, 2, 4)."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return tuple(cores)


def present(paths: SystemPaths = DEFAULT_PATHS) -> tuple[int, ...]:
    names = (path.name for path in paths.cpus.glob("cpu[0-9]*"))
    found = sorted(int(name[3:]) for name in names if name[3:].isdigit())
    return tuple(found) or tuple(range(os.cpu_count() or 1))


def allowed(paths: SystemPaths = DEFAULT_PATHS) -> tuple[int, ...] | None:
    """The cores that Android permits; an app in the background gets only the little ones."""
    status = read_text(paths.proc / "self" / "status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*([0-9,-]+)$", status, re.MULTILINE)
    return parse_list(match[1]) if match else None


def big_cores(paths: SystemPaths = DEFAULT_PATHS) -> tuple[int, ...]:
    """The cores that are faster than the slowest; all cores if they are equally fast."""
    cores = present(paths)
    speed = {core: _speed(core, paths) for core in cores}
    slowest = min(speed.values())
    return tuple(core for core in cores if speed[core] > slowest) or cores


def usable_cores(paths: SystemPaths = DEFAULT_PATHS) -> tuple[int, ...]:
    """The cores to compute on: the permitted big cores, else all permitted cores."""
    return big_among(allowed(paths) or present(paths), paths)


def big_among(permitted: tuple[int, ...], paths: SystemPaths = DEFAULT_PATHS) -> tuple[int, ...]:
    big = big_cores(paths)
    return tuple(core for core in permitted if core in big) or permitted


def frequency_mhz(paths: SystemPaths = DEFAULT_PATHS) -> tuple[int | None, int | None]:
    """Current and maximum, averaged over the big cores. Their ratio shows throttling if no thermometer is readable."""
    folders = [paths.cpus / f"cpu{core}" / "cpufreq" for core in big_cores(paths)]
    now = [read_int(folder / "scaling_cur_freq") for folder in folders]
    most = [read_int(folder / "cpuinfo_max_freq") for folder in folders]
    return _mean_mhz(now), _mean_mhz(most)


def _mean_mhz(kilohertz: list[int | None]) -> int | None:
    known = [value for value in kilohertz if value]
    return round(sum(known) / len(known) / 1000) if known else None


def _speed(core: int, paths: SystemPaths) -> int:
    folder = paths.cpus / f"cpu{core}"
    return read_int(folder / "cpu_capacity") or read_int(folder / "cpufreq" / "cpuinfo_max_freq") or 0
