"""What the phone's sessions find, or miss, in their environment and in $PREFIX."""

from __future__ import annotations

from orchestrator.lab.environment import PRELOAD, PhonePaths, android_environment, termux_environment
from orchestrator.lab.termux import told

_WRITABLE, _READ_ONLY = 0o755, 0o555


def app_environment(paths: PhonePaths) -> dict[str, str]:
    """What Termux starts its processes with."""
    environment = termux_environment(paths)
    if told(paths.scenario, "tmpdir") == "missing":
        del environment["TMPDIR"]
    return environment


def sshd_environment(paths: PhonePaths) -> dict[str, str]:
    """What sshd is started with, and so what every session inherits: bare if it was not Termux that started it."""
    bare = told(paths.scenario, "environment") == "bare"
    return android_environment(paths) if bare else app_environment(paths)


def allow_temporary_files(paths: PhonePaths) -> None:
    missing = told(paths.scenario, "tmpdir") == "missing"
    (paths.prefix / "tmp").chmod(_READ_ONLY if missing else _WRITABLE)


def install_preload(paths: PhonePaths) -> None:
    """Without the library `login` sets no LD_PRELOAD. Reinstalling its package brings it back, here as there."""
    library = paths.prefix / PRELOAD
    aside = library.with_suffix(".aside")
    if told(paths.scenario, "preload") == "missing":
        if library.exists():
            library.replace(aside)
    elif not library.exists() and aside.exists():
        aside.replace(library)
