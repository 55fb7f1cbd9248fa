"""Android's side of a phone: /system/bin and /sys/class/thermal."""

from __future__ import annotations

from pathlib import Path

from orchestrator.lab.termux.host import HostPrograms


def write_system(system: Path, sys_class: Path, scenario: Path, host: HostPrograms) -> None:
    """`scenario` is the directory the stand-ins read, at the path the phone sees it."""
    del scenario
    (system / "bin").mkdir(parents=True, exist_ok=True)
    (sys_class / "thermal").mkdir(parents=True, exist_ok=True)
    for name in ("sh", "ip", "ping"):
        if found := host.find("dash" if name == "sh" else name):
            (system / "bin" / name).symlink_to(found)
