"""The state of phones in `adb devices`, and what a person has to do when adb cannot use one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from orchestrator.bootstrap.adb import Adb, DeviceState, DisconnectedError

_ACCEPT: Final = "accept the dialog on the phone's screen: allow USB debugging, always from this computer"
_REMEDIES: Final = {
    "unauthorized": _ACCEPT,
    "authorizing": _ACCEPT,
    "connecting": "adb is connecting",
    "offline": "the phone does not answer adb: unplug it and plug it in again",
    "recovery": "the phone is in recovery mode: choose 'Reboot system now' on its screen",
    "sideload": "the phone waits for an update: choose 'Reboot system now' on its screen",
    "rescue": "the phone is in rescue mode: choose 'Reboot system now' on its screen",
    "bootloader": "the phone is in its boot loader: choose 'Start' on its screen",
}
_NO_PERMISSION: Final = (
    "this computer has no access to the phone's USB device: apt-get install android-sdk-platform-tools-common, "
    "then unplug the phone and plug it in again"
)
_ABSENT: Final = "plug the phone in, with USB debugging on"
_AWAY: Final = frozenset({"", "offline"})
_POLL_SECONDS: Final = 0.5


def remedy_for_state(state: str | None) -> str:
    """For a state other than `device`; None: adb does not list the phone."""
    if state is None:
        return _ABSENT
    if state.startswith("no permissions"):
        return _NO_PERMISSION
    return _REMEDIES.get(state, f"adb reports the state {state[:40]!r}: unplug the phone and plug it in again")


class DeviceMonitor:
    """Polls `adb devices` once for all phones that wait."""

    def __init__(self, adb: Adb) -> None:
        self._adb = adb
        self._lock = threading.Lock()
        self._polled = 0.0
        self._states: dict[str, str] = {}

    def state(self, name: str) -> str | None:
        with self._lock:
            if time.monotonic() - self._polled > _POLL_SECONDS:
                self._states = {each.name: each.state for each in self._adb.devices()}
                self._polled = time.monotonic()
            return self._states.get(name)

    def wait_online(
        self, name: str, seconds: float, on_wait: Callable[[str], None], while_away: str | None = None
    ) -> None:
        """Raises DisconnectedError with a remedy. `while_away`: the reason to report while the phone restarts."""
        deadline = time.monotonic() + seconds
        while not DeviceState(name, state := self.state(name) or "").online:
            if time.monotonic() > deadline:
                raise DisconnectedError(
                    f"adb could not reach it in {seconds:g} s", remedy=remedy_for_state(state or None)
                )
            on_wait(while_away if while_away and state in _AWAY else remedy_for_state(state or None))
            if not state and ":" in name:  # adb forgets phones that it reaches over a network
                self._adb.connect(name)
            time.sleep(_POLL_SECONDS)
