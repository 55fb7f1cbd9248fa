"""Memory and disk, in MB of 10^6 bytes."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from phone_agent.contract.files import read_text
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths


def total_mb(paths: SystemPaths = DEFAULT_PATHS) -> int | None:
    return _meminfo_mb("MemTotal", paths)


def available_mb(paths: SystemPaths = DEFAULT_PATHS) -> int | None:
    return _meminfo_mb("MemAvailable", paths)


def peak_bytes(paths: SystemPaths = DEFAULT_PATHS) -> int:
    """Peak resident memory of this process. Prefers /proc to getrusage, whose value survives exec: a small program
    started by a large one would report the peak of the large one."""
    kilobytes = _kilobytes("VmHWM", paths.proc / "self" / "status")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if kilobytes is None else kilobytes * 1024


def free_disk_mb(path: Path) -> int | None:
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize // 1_000_000


def _meminfo_mb(key: str, paths: SystemPaths) -> int | None:
    kilobytes = _kilobytes(key, paths.proc / "meminfo")
    return None if kilobytes is None else kilobytes * 1024 // 1_000_000


def _kilobytes(key: str, file: Path) -> int | None:
    """The kernel writes kB and means 1024 bytes."""
    match = re.search(rf"^{key}:\s+(\d+) kB", read_text(file) or "", re.MULTILINE)
    return int(match[1]) if match else None
