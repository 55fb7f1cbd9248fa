"""Start sshd after a restart of the phone, and keep the phone awake while Termux runs."""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.files import ManagedFile, install_files
from orchestrator.provision.resources import read_script, read_text
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

BOOT_SCRIPT = "~/.termux/boot/00-clusterctl"


class BootStep:
    name = "boot"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        del desired
        start = ("start sshd at boot",) if boot_script().differs(facts) else ()
        return (*start, "acquire the wake lock") if facts.wake_lock == "free" else start

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        del desired
        if boot_script().differs(facts):
            install_files(target.connect(), [boot_script()])
        if facts.wake_lock == "free":
            _acquire_wake_lock(target, facts)


def boot_script() -> ManagedFile:
    return ManagedFile(BOOT_SCRIPT, read_text("boot.sh").encode(), mode=0o700)


def _acquire_wake_lock(target: SshTarget, facts: TermuxFacts) -> None:
    done = target.connect().script(read_script("wake-lock"), str(facts.sshd_pid or ""))
    if not done.ok:
        how = "did not answer" if done.rc == 124 else f"failed: {done.stderr.strip()[-200:]}"
        raise PhoneError(
            f"termux-wake-lock {how}",
            code=ErrorCode.NEEDS_A_PERSON,
            phase="boot",
            remedy="open Termux on the phone, exempt it from battery optimization, then run the command again",
        )
