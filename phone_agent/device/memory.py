"""Memory and disk, in MB of 10^6 bytes."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from phone_agent.contract.files import read_text
from phone_agent.device.roots import REAL, Roots


def total_mb(roots: Roots = REAL) -> int | None:
    return _meminfo_mb("MemTotal", roots)


def available_mb(roots: Roots = REAL) -> int | None:
    return _meminfo_mb("MemAvailable", roots)


def peak_bytes(roots: Roots = REAL) -> int:
    """The most that this process had resident. Not by getrusage where /proc tells: its figure outlives exec, so a small
    program that a large one started shows the large one's."""
    told = _kilobytes("VmHWM", roots.proc / "self" / "status")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if told is None else told * 1024


def free_disk_mb(path: Path) -> int | None:
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize // 1_000_000


def _meminfo_mb(key: str, roots: Roots) -> int | None:
    told = _kilobytes(key, roots.proc / "meminfo")
    return None if told is None else told * 1024 // 1_000_000


def _kilobytes(key: str, file: Path) -> int | None:
    """Of 1024 bytes, whatever the kernel calls them."""
    match = re.search(rf"^{key}:\s+(\d+) kB", read_text(file) or "", re.MULTILINE)
    return int(match[1]) if match else None
