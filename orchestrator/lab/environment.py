"""Paths on a virtual phone, and the environment that the Termux app sets for its processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TERMUX_FILES = "data/data/com.termux/files"  # below the phone's root
PRELOAD = "lib/libtermux-exec-ld-preload.so"


@dataclass(frozen=True)
class PhonePaths:
    """Paths as seen by the phone. `root` is / except in loopback mode."""

    root: Path

    @property
    def files(self) -> Path:
        return self.root / TERMUX_FILES

    @property
    def prefix(self) -> Path:
        return self.files / "usr"

    @property
    def home(self) -> Path:
        return self.files / "home"

    @property
    def scenario(self) -> Path:
        return self.root / "system" / "scenario"


def termux_environment(paths: PhonePaths) -> dict[str, str]:
    """As set by TermuxShellEnvironment.java and `login`: no LD_LIBRARY_PATH, no /system/bin in PATH."""
    prefix = paths.prefix
    environment = {
        **android_environment(paths),
        "LANG": "en_US.UTF-8",
        "PATH": str(prefix / "bin"),
        "PREFIX": str(prefix),
        "TERMUX_VERSION": "0.118.3",
        "TMPDIR": str(prefix / "tmp"),
    }
    if (prefix / PRELOAD).exists():
        environment["LD_PRELOAD"] = str(prefix / PRELOAD)
    return environment


def android_environment(paths: PhonePaths) -> dict[str, str]:
    """The environment that Android itself sets for a process."""
    return {
        "ANDROID_DATA": str(paths.root / "data"),
        "ANDROID_ROOT": str(paths.root / "system"),
        "HOME": str(paths.home),
        "PATH": str(paths.root / "system" / "bin"),
    }
