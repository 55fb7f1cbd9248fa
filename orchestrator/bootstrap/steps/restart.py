"""sshd, started the way it will start from now on: by Termux:Boot, after a restart.

Started through run-as it would run in another domain than the app's, and be the first that Android ends. And a phone
whose sshd does not come up by itself is better found now than after the next power cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.steps.step import Action, Known, Site, Want, run_all
from orchestrator.errors import PhoneError
from phone_agent.contract.errors import ErrorCode

_BOOT_SECONDS: Final = 300.0
_SSHD_SECONDS: Final = 300.0
_AWAY: Final = "Android starts again"


class Restart:
    name = "restart"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        del want
        return () if known.answers() else (Action("restart the phone, so that Termux:Boot starts sshd", ("reboot",)),)

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None:
        run_all(site, actions)
        if not site.until(lambda: _is_up(site, known.seen.boot), _BOOT_SECONDS, _AWAY):
            raise AdbError(
                f"Android is not up {_BOOT_SECONDS:g} s after the restart",
                code=ErrorCode.TIMED_OUT,
                remedy="look at the phone's screen; unlock it if it asks, and take its screen lock away",
            )
        if not site.until(lambda: _answers(site), _SSHD_SECONDS, "Termux:Boot starts sshd"):
            raise AdbError(
                f"its sshd does not let us in {_SSHD_SECONDS:g} s after the restart",
                code=ErrorCode.TIMED_OUT,
                remedy="open Termux:Boot on the phone, and look into ~/.clusterctl/logs/boot.log in Termux",
            )


def _is_up(site: Site, boot_before: str) -> bool:
    known = _look(site)
    return known is not None and known.seen.boot != boot_before and known.seen.booted and known.seen.unlocked


def _answers(site: Site) -> bool:
    known = _look(site)
    return known is not None and known.answers()


def _look(site: Site) -> Known | None:
    """A phone that is just starting comes and goes, and tells half of what it will tell later."""
    try:
        site.wait_online(_BOOT_SECONDS, _AWAY)
        return site.look()
    except PhoneError:
        return None
