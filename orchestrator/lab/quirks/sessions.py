"""Quirks of SSH sessions: their environment, TMPDIR and LD_PRELOAD."""

from __future__ import annotations

from orchestrator.lab.environment import PRELOAD, PhonePaths, android_environment, termux_environment
from orchestrator.lab.termux import read_setting

_WRITABLE, _READ_ONLY = 0o755, 0o555


def app_environment(paths: PhonePaths) -> dict[str, str]:
    """The environment of processes started by the Termux app."""
    environment = termux_environment(paths)
    if read_setting(paths.scenario, "tmpdir") == "missing":
        del environment["TMPDIR"]
    return environment


def sshd_environment(paths: PhonePaths) -> dict[str, str]:
    """The environment of sshd, inherited by every session. It is bare if Termux did not start sshd."""
    bare = read_setting(paths.scenario, "environment") == "bare"
    return android_environment(paths) if bare else app_environment(paths)


def apply_tmpdir(paths: PhonePaths) -> None:
    missing = read_setting(paths.scenario, "tmpdir") == "missing"
    (paths.prefix / "tmp").chmod(_READ_ONLY if missing else _WRITABLE)


def apply_preload(paths: PhonePaths) -> None:
    """preload=missing moves the library away, so `login` sets no LD_PRELOAD. Reinstalling its package restores it."""
    library = paths.prefix / PRELOAD
    aside = library.with_suffix(".aside")
    if read_setting(paths.scenario, "preload") == "missing":
        if library.exists():
            library.replace(aside)
    elif not library.exists() and aside.exists():
        aside.replace(library)
