"""Install Termux, Termux:API and Termux:Boot from the given APKs, and open each once."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.bootstrap.adb import AdbError, AdbResult
from orchestrator.bootstrap.apk import Apk
from orchestrator.bootstrap.apk.folder import NAMES
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import one_line

_INSTALL_SECONDS: Final = 300.0
_FAILURE: Final = re.compile(r"INSTALL_[A-Z_]+")
_OTHER_SOURCE: Final = "a Termux app from another source (the Play Store, F-Droid) is already installed"
_UNINSTALL: Final = "uninstall it, which deletes all Termux data on the phone: " + "; ".join(
    f"adb -s {{serial}} uninstall {package}" for package in reversed(NAMES)
)

# Error of Android -> meaning, remedy
_INSTALL_ERRORS: Final = {
    "INSTALL_FAILED_UPDATE_INCOMPATIBLE": (_OTHER_SOURCE, _UNINSTALL),
    "INSTALL_FAILED_SHARED_USER_INCOMPATIBLE": (_OTHER_SOURCE, _UNINSTALL),
    "INSTALL_FAILED_VERSION_DOWNGRADE": ("a newer version is already installed", "use newer APKs, or " + _UNINSTALL),
    "INSTALL_FAILED_INSUFFICIENT_STORAGE": ("the phone's storage is full", "free space on the phone"),
    "INSTALL_FAILED_NO_MATCHING_ABIS": ("the APK is for another processor", "use the arm64-v8a or the universal APK"),
    "INSTALL_FAILED_OLDER_SDK": ("the APK needs a newer Android", "use the APK for this Android version"),
    "INSTALL_FAILED_USER_RESTRICTED": (
        "the phone does not allow installation over USB",
        "turn on 'Install via USB' in its developer options, then accept on its screen",
    ),
    "INSTALL_FAILED_VERIFICATION_FAILURE": (
        "Play Protect blocked it",
        "adb -s {serial} shell settings put global verifier_verify_adb_installs 0",
    ),
    "INSTALL_FAILED_ABORTED": ("it was declined on the phone's screen", "run the command again and accept it"),
}
_UNPACK_SECONDS: Final = 240.0


class AppsStep:
    name = "apps"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        return tuple(
            Action(f"install {apk.name} {one_line(apk.version)}", ("install", "-r", "-g", str(apk.path)))
            for apk in config.apks
            if not _is_installed(apk, facts)
        )

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        for action in self.plan(facts, config):
            result = target.device.run(*action.adb, timeout=_INSTALL_SECONDS)
            if not result.ok:
                raise _install_error(action, result, target.device.name)


def _is_installed(apk: Apk, facts: PhoneFacts) -> bool:
    app = facts.android.apps.get(apk.package)
    return app is not None and app.sha256 == apk.sha256


def _install_error(action: Action, result: AdbResult, serial: str) -> AdbError:
    error = next((found for found in _FAILURE.findall(result.output) if found in _INSTALL_ERRORS), None)
    if error is None:
        return AdbError(f"could not {action}: {result.summary}", code=ErrorCode.PACKAGE_FAILED)
    meaning, remedy = _INSTALL_ERRORS[error]
    return AdbError(
        f"could not {action}: {meaning} ({error})",
        code=ErrorCode.PACKAGE_FAILED,
        remedy=remedy.format(serial=serial),
    )


class UnpackStep:
    """Open Termux, which unpacks its programs when its activity is first on the screen."""

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


class OpenAppsStep:
    """Open Termux:Boot and Termux:API once: before that, Android does not let them run."""

    name = "open-apps"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        apps = facts.android.apps
        return tuple(
            action
            for apk in (config.apks.boot, config.apks.api)
            if apk.package not in apps or not apps[apk.package].opened
            for action in open_app(f"open {apk.name} once", apk.component)
        )

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        target.run(self.plan(facts, config))
