"""Fixes that need adb, as commands to paste. Their sources are listed in docs/guide/troubleshooting.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from orchestrator.inventory.model import Phone

TO_FRONT: Final = (
    "shell input keyevent WAKEUP",
    "shell wm dismiss-keyguard",
    "shell am start -n com.termux/.app.TermuxActivity",
)
START_SSHD: Final = (*TO_FRONT, "shell input text sshd", "shell input keyevent ENTER")
OPEN_BOOT: Final = (*TO_FRONT, "shell am start -n com.termux.boot/.BootActivity")
OPEN_API: Final = ("shell am start -n com.termux.api/.activities.TermuxAPIMainActivity",)
STAY_AWAKE: Final = (
    "shell dumpsys deviceidle whitelist +com.termux",
    "shell dumpsys deviceidle whitelist +com.termux.api",
    "shell dumpsys deviceidle whitelist +com.termux.boot",
)
WIRED_ONLY: Final = (
    "shell svc wifi disable",
    "shell svc data disable",
    "shell settings put global captive_portal_mode 0",
)
NO_PHANTOM_KILLER: Final = (
    "shell device_config set_sync_disabled_for_tests persistent",
    "shell device_config put activity_manager max_phantom_processes 2147483647",
)
READ_HEAT: Final = ("shell pm grant com.termux android.permission.DUMP",)
SHOW_INTERFACES: Final = ("shell ip -br addr",)


def set_clock(host: str) -> tuple[str, ...]:
    return (f"shell settings put global ntp_server {host}", "shell settings put global auto_time 1")


def command_lines(phones: Iterable[Phone], commands: Iterable[str]) -> Iterator[str]:
    """One line per command: a loop if there are several phones, and a placeholder for unknown serial numbers."""
    selected = list(phones)
    serials = [phone.serial for phone in selected if phone.serial]
    unknown = [phone.name for phone in selected if not phone.serial]
    for command in commands:
        if len(serials) == 1:
            yield f"adb -s {serials[0]} {command}"
        elif serials:
            yield f"for serial in {' '.join(serials)}; do adb -s $serial {command}; done"
        if unknown:
            yield f"adb -s SERIAL {command}"
