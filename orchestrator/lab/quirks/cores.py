"""The cores that a phone shows in /sys/devices/system/cpu, and those that its processes may use.

The host's cores are all alike, and there may be fewer than a phone's eight. The cores assigned to the phone are shown
as big cores, and the rest as little cores that cannot be used. With cpuset=background it is the other way round: the
app keeps half of its cores, and they are shown as little ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab import syscalls
from orchestrator.lab.processes import descendants

CPUS = Path("/sys/devices/system/cpu")
LITTLE_CORE_SPEED = 0.35  # relative to a big core
_PHONE_CORES = 8


@dataclass(frozen=True)
class CoreType:
    capacity: int
    max_khz: int
    min_khz: int


_BIG = CoreType(1024, 2419200, 710400)  # Cortex-A76 and A55 of a Snapdragon 855
_LITTLE = CoreType(379, 1785600, 300000)


@dataclass(frozen=True)
class PhoneCores:
    own: frozenset[int]  # assigned to this phone

    def usable(self, *, background: bool) -> frozenset[int]:
        count = max(1, len(self.own) // 2) if background else len(self.own)
        return frozenset(sorted(self.own)[:count])

    def write_sysfs(self, directory: Path, *, background: bool, speed: float) -> None:
        """Write the sysfs files of the phone's cores. `speed` is relative to the maximum frequency."""
        usable = self.usable(background=background)
        own_type, other_type = (_LITTLE, _BIG) if background else (_BIG, _LITTLE)
        count = max(_PHONE_CORES, max(self.own) + 1)
        types = [own_type if core in usable else other_type for core in range(count)]
        for name in ("online", "possible", "present"):
            _write(directory / name, f"0-{len(types) - 1}")
        for core_type in set(types):
            _write_policy(directory / "cpufreq" / f"policy{types.index(core_type)}", core_type, speed)
        for core, core_type in enumerate(types):
            _write_core(directory / f"cpu{core}", core, core_type, types.index(core_type))
            _write_siblings(directory / f"cpu{core}" / "topology", core, count)


def _write_policy(policy: Path, core_type: CoreType, speed: float) -> None:
    now = max(core_type.min_khz, round(core_type.max_khz * speed))
    for name, khz in (
        ("cpuinfo_max_freq", core_type.max_khz),
        ("cpuinfo_min_freq", core_type.min_khz),
        ("scaling_cur_freq", now),
    ):
        _write(policy / name, str(khz))


def _write_core(folder: Path, core: int, core_type: CoreType, policy: int) -> None:
    _write(folder / "cpu_capacity", str(core_type.capacity))
    _write(folder / "topology" / "core_id", str(core))
    _write(folder / "topology" / "physical_package_id", "0")
    link = folder / "cpufreq"
    link.unlink(missing_ok=True)
    link.symlink_to(f"../cpufreq/policy{policy}")


def _write_siblings(topology: Path, core: int, count: int) -> None:
    """Without these files Open MPI finds no cores on arm64, and starts nothing unless a hostfile sets the slots."""
    _write(topology / "thread_siblings", _mask(1 << core))
    _write(topology / "core_siblings", _mask((1 << count) - 1))


def _mask(cores: int) -> str:
    """Format a CPU mask as the kernel does, in 32-bit words."""
    words = [f"{cores >> shift & 0xFFFFFFFF:08x}" for shift in range(0, cores.bit_length(), 32)]
    return ",".join(reversed(words))


def _write(file: Path, text: str) -> None:
    """Write atomically, because the phone may read at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(f"{text}\n")
    temporary.replace(file)


def mount_empty_sysfs() -> None:
    """Mount an empty directory over the host's cores, to be filled with those of a phone."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("tmpfs", CPUS, "tmpfs", flags, "mode=755,size=1m")


def set_affinity(cores: Iterable[int]) -> None:
    """Restrict this process and all its descendants, with all their threads, to these cores."""
    for pid in (os.getpid(), *(process.pid for process in descendants(os.getpid()))):
        for thread in _threads(pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []
