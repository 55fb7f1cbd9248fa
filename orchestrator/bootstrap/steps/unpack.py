"""Open Termux, which unpacks its programs when its activity is first on the screen."""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from phone_agent.contract.errors import ErrorCode

_UNPACK_SECONDS: Final = 240.0


class UnpackStep:
    name = "unpack"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        if facts.android.unpacked:
            return ()
        return open_app("open Termux, which unpacks its programs", config.apks.termux.component)

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        target.run(self.plan(facts, config))
        last: list[PhoneFacts] = []

        def unpacked() -> bool:
            last[:] = [target.collect_facts()]
            return last[0].android.unpacked

        if not target.wait_until(unpacked, _UNPACK_SECONDS, "Termux is unpacking its programs"):
            run_as = last[0].android.run_as
            if not run_as.isdecimal():
                raise AdbError(
                    f"run-as has no access to Termux: {run_as[:200]}",
                    code=ErrorCode.COMMAND_FAILED,
                    remedy=_DEBUG_BUILD,
                )
            raise AdbError(
                f"Termux did not unpack its programs within {_UNPACK_SECONDS:g} s",
                code=ErrorCode.TIMED_OUT,
                remedy="check the phone's screen: Termux shows the reason there",
            )


_DEBUG_BUILD: Final = "uninstall Termux on the phone, and use its GitHub debug build in --apks: only that allows run-as"


def open_app(description: str, component: str) -> tuple[Action, ...]:
    return (
        Action.shell("wake the screen", "input", "keyevent", "WAKEUP"),
        Action.shell("dismiss the lock screen", "wm", "dismiss-keyguard"),
        Action.shell(description, "am", "start", "-n", component),
    )
