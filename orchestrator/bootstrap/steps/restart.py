"""Restart the phone, so that Termux:Boot starts sshd.

An sshd started through run-as would run in another SELinux domain than the app, and Android would kill it first. The
restart also proves that sshd comes back after a power cut.
"""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from orchestrator.errors import PhoneError
from phone_agent.contract.errors import ErrorCode

_BOOT_SECONDS: Final = 300.0
_SSHD_SECONDS: Final = 300.0
_AWAY: Final = "Android is restarting"
_REBOOT: Final = Action("restart the phone, so that Termux:Boot starts sshd", ("reboot",))


class RestartStep:
    name = "restart"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        del config
        return () if facts.accepts_login() else (_REBOOT,)

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        del config
        target.run((_REBOOT,))
        if not target.wait_until(lambda: _is_up(target, facts.android.boot_id), _BOOT_SECONDS, _AWAY):
            raise AdbError(
                f"Android did not start within {_BOOT_SECONDS:g} s",
                code=ErrorCode.TIMED_OUT,
                remedy="check the phone's screen; unlock it if it asks, and remove the screen lock",
            )
        if not target.wait_until(lambda: _accepts_login(target), _SSHD_SECONDS, "Termux:Boot is starting sshd"):
            raise AdbError(
                f"its sshd does not accept a login {_SSHD_SECONDS:g} s after the restart",
                code=ErrorCode.TIMED_OUT,
                remedy="open Termux:Boot on the phone, and check ~/.clusterctl/logs/boot.log in Termux",
            )


def _is_up(target: AdbTarget, boot_id_before: str) -> bool:
    facts = _try_collect_facts(target)
    if facts is None:
        return False
    android = facts.android
    return android.boot_id != boot_id_before and android.booted and android.unlocked


def _accepts_login(target: AdbTarget) -> bool:
    facts = _try_collect_facts(target)
    return facts is not None and facts.accepts_login()


def _try_collect_facts(target: AdbTarget) -> PhoneFacts | None:
    """None if the phone, while it starts, disconnects or gives incomplete facts."""
    try:
        target.wait_online(_BOOT_SECONDS, _AWAY)
        return target.collect_facts()
    except PhoneError:
        return None
