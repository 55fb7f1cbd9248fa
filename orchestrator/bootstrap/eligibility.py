"""Whether a phone can be bootstrapped: what a person has to do first, what rules it out, what to warn of."""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.android_facts import AndroidFacts
from orchestrator.bootstrap.apk.folder import TERMUX
from orchestrator.bootstrap.steps.step import BootstrapConfig
from phone_agent.contract.errors import ErrorCode

_MIN_SDK: Final = 28  # Android 9
_MAX_TESTED_SDK: Final = 32  # Android 12L
_NEEDED_KB: Final = 1_500_000  # Termux unpacked, and the packages of provision
_PLAY_STORE: Final = "com.android.vending"


def manual_step(facts: AndroidFacts) -> str | None:
    """What a person has to do at the phone before it can continue."""
    if not facts.booted:
        return "Android is still starting"
    if not facts.unlocked:
        return "unlock the phone once: apps have no access to their data before that"
    if facts.screen_lock:
        return "remove the screen lock (Settings, Lock screen, Screen lock type, None): it keeps apps from starting"
    return None


def require_supported(facts: AndroidFacts, config: BootstrapConfig) -> None:
    if facts.sdk < _MIN_SDK:
        raise AdbError(
            f"Android version ({facts.device}) is older than 9",
            code=ErrorCode.UNSUPPORTED_PHONE,
            remedy="update the phone, or use another one",
        )
    for apk in config.apks:
        if apk.abis and not apk.abis & facts.abis:
            raise AdbError(
                f"{apk.path.name} is for {', '.join(sorted(apk.abis))}, which this phone does not support",
                code=ErrorCode.UNSUPPORTED_PHONE,
                remedy="use the arm64-v8a or the universal APK",
            )
    if TERMUX not in facts.apps and facts.disk_free_kb is not None and facts.disk_free_kb < _NEEDED_KB:
        raise AdbError(
            f"{facts.disk_free_kb // 1000} MB of storage free, {_NEEDED_KB // 1000} MB needed",
            code=ErrorCode.DISK_FULL,
            remedy="free space on the phone, or reset it to factory settings",
        )


def warnings(facts: AndroidFacts) -> tuple[str, ...]:
    found = []
    if facts.sdk > _MAX_TESTED_SDK:
        found.append("runs Android 13 or newer, whose restrictions bootstrap has not been tested with")
    if any(app.installer == _PLAY_STORE for app in facts.apps.values()):
        found.append("has a Termux app from the Play Store, which APKs from another source cannot replace")
    if facts.mac is None:
        found.append("has no Ethernet adapter plugged in: MAC address not recorded")
    return tuple(found)
