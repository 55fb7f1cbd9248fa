"""Android's own settings: awake, on the wire only, and away from Termux's processes."""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.apk.folder import NAMES, TERMUX
from orchestrator.bootstrap.steps.step import Action, Known, Plain, Want

ANDROID_12: Final = 31
ANDROID_12L: Final = 32
_NO_LIMIT: Final = "2147483647"
_WIFI_IS_OFF: Final = frozenset({"0", "3"})  # 3: by airplane mode
_ANY_CHARGER: Final = "7"  # mains, USB, wireless
_GRANTS: Final = ("DUMP", "READ_LOGS", "WRITE_SECURE_SETTINGS", "PACKAGE_USAGE_STATS")


class Settings(Plain):
    name = "settings"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        seen = known.seen
        lines = [
            _put(known, "stay awake on any charger", "stay_on_while_plugged_in", _ANY_CHARGER),
            # A wired network without internet is used only where Android does not insist on finding some.
            _put(known, "not ask the internet whether a network is good", "captive_portal_mode", "0"),
            _put(known, "take the time from the network", "auto_time", "1"),
        ]
        if want.ntp:
            lines.append(_put(known, f"take the time from {want.ntp}", "ntp_server", str(want.ntp)))
        if seen.settings.get("wifi_on") not in _WIFI_IS_OFF:
            lines.append(Action.shell("switch Wi-Fi off", "svc", "wifi", "disable"))
        if seen.settings.get("mobile_data") != "0":
            lines.append(Action.shell("switch mobile data off", "svc", "data", "disable"))
            # Without a SIM card the service has nothing to switch, and says nothing.
            lines.append(_put(known, "keep mobile data off", "mobile_data", "0"))
        return tuple(line for line in lines if line)


class Power(Plain):
    name = "power"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        del want
        termux = known.seen.apps.get(TERMUX)
        granted = termux.grants if termux else frozenset()
        exempt = [
            Action.shell(f"exempt {NAMES[package]} from battery optimisation", *_WHITELIST, f"+{package}")
            for package in NAMES
            if package not in known.seen.whitelist
        ]
        grants = [
            Action.shell(f"grant Termux {name}", "pm", "grant", TERMUX, f"android.permission.{name}")
            for name in _GRANTS
            if name not in granted
        ]
        return (*exempt, *grants, *_phantom(known))


_WHITELIST: Final = ("dumpsys", "deviceidle", "whitelist")


def _put(known: Known, what: str, key: str, value: str) -> Action | None:
    if known.seen.settings.get(key) == value:
        return None
    return Action.shell(what, "settings", "put", "global", key, value)


def _phantom(known: Known) -> list[Action]:
    """Android 12 ends what an app starts beyond 32 processes. Unless told not to, Google's servers set that again."""
    seen = known.seen
    if seen.sdk < ANDROID_12:
        return []
    lines = []
    if not seen.sync_disabled:
        what = "keep Android's limits as they are set here"
        lines.append(Action.shell(what, "device_config", "set_sync_disabled_for_tests", "persistent"))
    if seen.phantom_limit != _NO_LIMIT:
        put = ("device_config", "put", "activity_manager", "max_phantom_processes", _NO_LIMIT)
        lines.append(Action.shell("lift the limit of 32 processes", *put))
    key = "settings_enable_monitor_phantom_procs"
    if seen.sdk >= ANDROID_12L and seen.settings.get(key) != "false":
        lines.append(Action.shell("switch the phantom-process monitor off", "settings", "put", "global", key, "false"))
    return lines
