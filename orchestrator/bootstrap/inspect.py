"""Can this phone be set up at all? What somebody has to do first, what speaks against it, what to keep in mind."""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.adb import AdbError
from orchestrator.bootstrap.apk.folder import TERMUX
from orchestrator.bootstrap.facts import Seen
from orchestrator.bootstrap.steps.step import Want
from phone_agent.contract.errors import ErrorCode

_OLDEST_SDK: Final = 28  # Android 9
_NEWEST_SDK: Final = 32  # Android 12L
_ROOM_KB: Final = 1_500_000  # Termux unpacked, and what provision will install
_PLAY_STORE: Final = "com.android.vending"


def for_hands(seen: Seen) -> str | None:
    """What only a person can do, at the phone itself; None: nothing."""
    if not seen.booted:
        return "Android is still starting"
    if not seen.unlocked:
        return "unlock the phone once: until then its apps have no data"
    if seen.locked:
        return "take the screen lock away (Settings, Lock screen, Screen lock type, None): apps wait behind it"
    return None


def refuse(seen: Seen, want: Want) -> None:
    if seen.sdk < _OLDEST_SDK:
        raise AdbError(
            f"its Android ({seen.told}) is older than 9",
            code=ErrorCode.UNSUPPORTED_PHONE,
            remedy="update the phone, or use another one",
        )
    for apk in want.apks:
        if apk.abis and not apk.abis & seen.abis:
            raise AdbError(
                f"{apk.path.name} is for {', '.join(sorted(apk.abis))}, this phone is none of them",
                code=ErrorCode.UNSUPPORTED_PHONE,
                remedy="bring the arm64-v8a or the universal APK",
            )
    if TERMUX not in seen.apps and seen.disk_free_kb is not None and seen.disk_free_kb < _ROOM_KB:
        raise AdbError(
            f"only {seen.disk_free_kb // 1000} MB of storage are free, {_ROOM_KB // 1000} are needed",
            code=ErrorCode.DISK_FULL,
            remedy="free space on the phone; a factory reset is the surest way",
        )


def warnings(seen: Seen) -> tuple[str, ...]:
    told = []
    if seen.sdk > _NEWEST_SDK:
        told.append("runs an Android newer than 12, which hides more from apps than these steps expect")
    if any(app.installer == _PLAY_STORE for app in seen.apps.values()):
        told.append("has an app of Termux from the Play Store, which another source cannot replace")
    if seen.mac is None:
        told.append("without an Ethernet adaptor plugged in: MAC address not known yet")
    return tuple(told)
