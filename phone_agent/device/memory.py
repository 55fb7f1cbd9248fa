"""Memory and disk, in MB."""

from __future__ import annotations

import os
import re
from pathlib import Path

from phone_agent.device.roots import REAL, Roots
from phone_agent.files import read_text


def total_mb(roots: Roots = REAL) -> int | None:
    return _meminfo_mb("MemTotal", roots)


def available_mb(roots: Roots = REAL) -> int | None:
    return _meminfo_mb("MemAvailable", roots)


def free_disk_mb(path: Path) -> int | None:
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize // 1_000_000


def _meminfo_mb(key: str, roots: Roots) -> int | None:
    match = re.search(rf"^{key}:\s+(\d+) kB", read_text(roots.proc / "meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 // 1_000_000 if match else None
