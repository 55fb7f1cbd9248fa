"""Termux, Termux:API and Termux:Boot, as the user brought them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.apk import Apk
from orchestrator.bootstrap.apk.folder import NAMES
from orchestrator.bootstrap.steps.step import Action, Known, Site, Want
from orchestrator.fleet.sanitize import printable
from phone_agent.contract.errors import ErrorCode

_INSTALL_SECONDS: Final = 300.0
_FAILURE: Final = re.compile(r"INSTALL_[A-Z_]+")
_OTHER_SOURCE: Final = "an app of Termux from another source (the Play Store, F-Droid) is installed already"
_UNINSTALL: Final = "what is in Termux on this phone is lost by it: " + "; ".join(
    f"adb -s {{serial}} uninstall {package}" for package in reversed(NAMES)
)

# Android's word for it -> what it means, what to do
_REFUSALS: Final = {
    "INSTALL_FAILED_UPDATE_INCOMPATIBLE": (_OTHER_SOURCE, _UNINSTALL),
    "INSTALL_FAILED_SHARED_USER_INCOMPATIBLE": (_OTHER_SOURCE, _UNINSTALL),
    "INSTALL_FAILED_VERSION_DOWNGRADE": ("a newer version is installed already", "bring newer APKs, or " + _UNINSTALL),
    "INSTALL_FAILED_INSUFFICIENT_STORAGE": ("the phone's storage is full", "free space on the phone"),
    "INSTALL_FAILED_NO_MATCHING_ABIS": ("the APK is for another processor", "bring the arm64-v8a or the universal APK"),
    "INSTALL_FAILED_OLDER_SDK": ("the APK needs a newer Android", "bring the APK for this Android"),
    "INSTALL_FAILED_USER_RESTRICTED": (
        "the phone does not allow apps over USB",
        "in its developer options: allow 'Install via USB', then accept on its screen",
    ),
    "INSTALL_FAILED_VERIFICATION_FAILURE": (
        "Play Protect refused it",
        "adb -s {serial} shell settings put global verifier_verify_adb_installs 0",
    ),
    "INSTALL_FAILED_ABORTED": ("somebody refused it on the phone's screen", "run it again, and allow it"),
}


class Apps:
    name = "apps"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        return tuple(
            Action(f"install {apk.name} {printable(apk.version)}", ("install", "-r", "-g", str(apk.path)))
            for apk in want.apks
            if not _is_there(apk, known)
        )

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None:
        del known
        for action in actions:
            done = site.device.run(*action.adb, timeout=_INSTALL_SECONDS)
            if not done.ok:
                raise _refusal(action, done.stdout + done.stderr, done.said, site.device.name)


def _is_there(apk: Apk, known: Known) -> bool:
    app = known.seen.apps.get(apk.package)
    return app is not None and app.sha256 == apk.sha256


def _refusal(action: Action, output: str, said: str, serial: str) -> AdbError:
    word = next((found for found in _FAILURE.findall(output) if found in _REFUSALS), None)
    if word is None:
        return AdbError(f"could not {action.what}: {said}", code=ErrorCode.PACKAGE_FAILED)
    meaning, remedy = _REFUSALS[word]
    return AdbError(
        f"could not {action.what}: {meaning} ({word})",
        code=ErrorCode.PACKAGE_FAILED,
        remedy=remedy.format(serial=serial),
    )
