"""Termux's own programs: its activity unpacks them the first time it is on the screen, and only it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.steps.step import Action, Known, Site, Want, run_all
from phone_agent.contract.errors import ErrorCode

_UNPACK_SECONDS: Final = 240.0


class Unpack:
    name = "unpack"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        return (
            () if known.seen.unpacked else start("open Termux, which unpacks its programs", want.apks.termux.component)
        )

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None:
        del known
        run_all(site, actions)
        last: list[Known] = []

        def unpacked() -> bool:
            last[:] = [site.look()]
            return last[0].seen.unpacked

        if not site.until(unpacked, _UNPACK_SECONDS, "Termux unpacks its programs"):
            said = last[0].seen.run_as
            if not said.isdecimal():
                raise AdbError(
                    f"run-as does not let adb into Termux: {said[:200]}",
                    code=ErrorCode.COMMAND_FAILED,
                    remedy=_DEBUG_BUILD,
                )
            raise AdbError(
                f"Termux has not unpacked its programs in {_UNPACK_SECONDS:g} s",
                code=ErrorCode.TIMED_OUT,
                remedy="look at the phone's screen: Termux says there what it lacks",
            )


_DEBUG_BUILD: Final = "uninstall Termux there; its GitHub debug build, which --apks must hold, lets adb in"


def start(what: str, component: str) -> tuple[Action, ...]:
    return (
        Action.shell("wake the screen", "input", "keyevent", "WAKEUP"),
        Action.shell("put the lock screen aside", "wm", "dismiss-keyguard"),
        Action.shell(what, "am", "start", "-n", component),
    )
