"""Staying up: sshd again after a restart, no sleep while Termux runs."""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.files import ManagedFile, install_files
from orchestrator.provision.resources import read_text, script
from orchestrator.provision.steps.step import Changes, Site
from phone_agent.contract.errors import ErrorCode

BOOT_SCRIPT = "~/.termux/boot/00-clusterctl"


class Boot:
    name = "boot"

    def check(self, facts: Facts, want: Want) -> Changes:
        del want
        start = ("start sshd at boot",) if boot_script().differs(facts) else ()
        return (*start, "take the wake lock") if facts.wake_lock == "free" else start

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        del want
        if boot_script().differs(facts):
            install_files(site.connect(), [boot_script()])
        if facts.wake_lock == "free":
            _take_wake_lock(site, facts)


def boot_script() -> ManagedFile:
    return ManagedFile(BOOT_SCRIPT, read_text("boot.sh").encode(), mode=0o700)


def _take_wake_lock(site: Site, facts: Facts) -> None:
    done = site.connect().script(script("wake-lock"), str(facts.sshd_pid or ""))
    if not done.ok:
        how = "does not answer" if done.rc == 124 else f"failed: {done.stderr.strip()[-200:]}"
        raise PhoneError(
            f"termux-wake-lock {how}",
            code=ErrorCode.NEEDS_A_PERSON,
            phase="boot",
            remedy="open Termux on the phone once and allow it to ignore battery optimisation, then run it again",
        )
