"""Android settings: stay awake, use the wired network only, and do not kill Termux processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.bootstrap.android_facts import AndroidFacts
from orchestrator.bootstrap.apk.folder import NAMES, TERMUX
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts

ANDROID_12: Final = 31
ANDROID_12L: Final = 32
_NO_LIMIT: Final = "2147483647"
_WIFI_IS_OFF: Final = frozenset({"0", "3"})  # 3: by airplane mode
_ANY_CHARGER: Final = "7"  # mains, USB, wireless
_GRANTS: Final = ("DUMP", "READ_LOGS", "WRITE_SECURE_SETTINGS", "PACKAGE_USAGE_STATS")


class SettingsStep:
    name = "settings"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        settings = facts.android.settings
        actions = [
            _put(settings, "stay awake on any charger", "stay_on_while_plugged_in", _ANY_CHARGER),
            # Otherwise Android does not use a wired network that has no internet access.
            _put(settings, "turn the captive-portal check off", "captive_portal_mode", "0"),
            _put(settings, "set the time automatically", "auto_time", "1"),
        ]
        if config.ntp:
            actions.append(_put(settings, f"set the time server to {config.ntp}", "ntp_server", str(config.ntp)))
        if settings.get("wifi_on") not in _WIFI_IS_OFF:
            actions.append(Action.shell("turn Wi-Fi off", "svc", "wifi", "disable"))
        if settings.get("mobile_data") != "0":
            actions.append(Action.shell("turn mobile data off", "svc", "data", "disable"))
            # Without a SIM card the command above has no effect.
            actions.append(_put(settings, "keep mobile data off", "mobile_data", "0"))
        return tuple(action for action in actions if action)

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        target.run(self.plan(facts, config))


class PowerStep:
    name = "power"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        del config
        termux = facts.android.apps.get(TERMUX)
        granted = termux.grants if termux else frozenset()
        exempt = [
            Action.shell(f"exempt {NAMES[package]} from battery optimization", *_WHITELIST, f"+{package}")
            for package in NAMES
            if package not in facts.android.whitelist
        ]
        grants = [
            Action.shell(f"grant Termux {name}", "pm", "grant", TERMUX, f"android.permission.{name}")
            for name in _GRANTS
            if name not in granted
        ]
        return (*exempt, *grants, *_allow_phantom_processes(facts.android))

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        target.run(self.plan(facts, config))


_WHITELIST: Final = ("dumpsys", "deviceidle", "whitelist")


def _put(settings: Mapping[str, str], description: str, key: str, value: str) -> Action | None:
    if settings.get(key) == value:
        return None
    return Action.shell(description, "settings", "put", "global", key, value)


def _allow_phantom_processes(android: AndroidFacts) -> list[Action]:
    """Android 12 kills child processes of apps beyond 32. Syncing is turned off so that Google does not reset this."""
    if android.sdk < ANDROID_12:
        return []
    actions = []
    if not android.sync_disabled:
        description = "keep Android from resetting its process limits"
        actions.append(Action.shell(description, "device_config", "set_sync_disabled_for_tests", "persistent"))
    if android.phantom_limit != _NO_LIMIT:
        put = ("device_config", "put", "activity_manager", "max_phantom_processes", _NO_LIMIT)
        actions.append(Action.shell("remove the limit of 32 processes", *put))
    key = "settings_enable_monitor_phantom_procs"
    if android.sdk >= ANDROID_12L and android.settings.get(key) != "false":
        actions.append(Action.shell("turn the phantom-process monitor off", "settings", "put", "global", key, "false"))
    return actions
