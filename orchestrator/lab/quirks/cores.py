"""The cores a phone shows in /sys/devices/system/cpu, and those its processes may use.

This computer's cores are all alike, and it may have fewer than a phone's eight. So a phone's own cores, those dealt
out to it, are shown as big ones, and the rest as little ones nobody may use. In the background it is the other way
round: the app keeps half of its cores, and they are shown as little.
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
LITTLE_SPEED = 0.35  # of a big core's
_PHONE_CORES = 8


@dataclass(frozen=True)
class Kind:
    capacity: int
    highest_khz: int
    lowest_khz: int


_BIG = Kind(1024, 2419200, 710400)  # a Snapdragon 855's Cortex-A76 and A55
_LITTLE = Kind(379, 1785600, 300000)


@dataclass(frozen=True)
class Cores:
    own: frozenset[int]  # dealt out to this phone

    def usable(self, *, background: bool) -> frozenset[int]:
        kept = max(1, len(self.own) // 2) if background else len(self.own)
        return frozenset(sorted(self.own)[:kept])

    def show(self, directory: Path, *, background: bool, share: float) -> None:
        """Writes the phone's cores, running at `share` of their highest frequency."""
        usable = self.usable(background=background)
        mine, others = (_LITTLE, _BIG) if background else (_BIG, _LITTLE)
        count = max(_PHONE_CORES, max(self.own) + 1)
        kinds = [mine if core in usable else others for core in range(count)]
        for name in ("online", "possible", "present"):
            _write(directory / name, f"0-{len(kinds) - 1}")
        for kind in set(kinds):
            _show_policy(directory / "cpufreq" / f"policy{kinds.index(kind)}", kind, share)
        for core, kind in enumerate(kinds):
            _show_core(directory / f"cpu{core}", core, kind, kinds.index(kind))
            _show_siblings(directory / f"cpu{core}" / "topology", core, count)


def _show_policy(policy: Path, kind: Kind, share: float) -> None:
    now = max(kind.lowest_khz, round(kind.highest_khz * share))
    for name, khz in (
        ("cpuinfo_max_freq", kind.highest_khz),
        ("cpuinfo_min_freq", kind.lowest_khz),
        ("scaling_cur_freq", now),
    ):
        _write(policy / name, str(khz))


def _show_core(folder: Path, core: int, kind: Kind, policy: int) -> None:
    _write(folder / "cpu_capacity", str(kind.capacity))
    _write(folder / "topology" / "core_id", str(core))
    _write(folder / "topology" / "physical_package_id", "0")
    link = folder / "cpufreq"
    link.unlink(missing_ok=True)
    link.symlink_to(f"../cpufreq/policy{policy}")


def _show_siblings(topology: Path, core: int, count: int) -> None:
    """Without these Open MPI on a phone's processor finds no core, and starts nothing that no hostfile places."""
    _write(topology / "thread_siblings", _mask(1 << core))
    _write(topology / "core_siblings", _mask((1 << count) - 1))


def _mask(cores: int) -> str:
    """As the kernel writes sets of cores: words of 32 bits."""
    words = [f"{cores >> place & 0xFFFFFFFF:08x}" for place in range(0, cores.bit_length(), 32)]
    return ",".join(reversed(words))


def _write(file: Path, text: str) -> None:
    """At once: the phone reads while we write."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}")
    fresh.write_text(f"{text}\n")
    fresh.replace(file)


def cover() -> None:
    """Puts an empty directory over this computer's cores, to be filled with a phone's."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("tmpfs", CPUS, "tmpfs", flags, "mode=755,size=1m")


def confine(cores: Iterable[int]) -> None:
    """This process and all its descendants, with all their threads, run on these cores only."""
    for pid in (os.getpid(), *(process.pid for process in descendants(os.getpid()))):
        for thread in _threads(pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []
