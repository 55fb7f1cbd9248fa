"""Is a phone at the end of the cable, and does it let adb in? If not: what somebody has to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from orchestrator.bootstrap.adb import Adb, Attached, GoneError

_STATES: Final = {
    "unauthorized": "accept the dialog on the phone's screen: allow USB debugging, always from this computer",
    "authorizing": "accept the dialog on the phone's screen: allow USB debugging, always from this computer",
    "connecting": "adb is connecting",
    "offline": "plug the phone out and in again: it does not answer adb",
    "recovery": "the phone is in recovery mode: choose 'Reboot system now' on its screen",
    "sideload": "the phone waits for an update: choose 'Reboot system now' on its screen",
    "rescue": "the phone is in rescue mode: choose 'Reboot system now' on its screen",
    "bootloader": "the phone is in its boot loader: choose 'Start' on its screen",
}
_NO_PERMISSION: Final = (
    "this computer may not use the phone's USB device: apt-get install android-sdk-platform-tools-common, "
    "then plug it out and in again"
)
_ABSENT: Final = "plug the phone in, with USB debugging on"
_AWAY: Final = frozenset({"", "offline"})
_EVERY: Final = 0.5


def what_to_do(state: str | None) -> str:
    """For a state that is not `device`; None: adb does not list the phone."""
    if state is None:
        return _ABSENT
    if state.startswith("no permissions"):
        return _NO_PERMISSION
    return _STATES.get(state, f"adb says it is {state[:40]!r}; plug the phone out and in again")


class Bus:
    """Who is attached, asked once for all phones that wait."""

    def __init__(self, adb: Adb) -> None:
        self._adb = adb
        self._lock = threading.Lock()
        self._asked = 0.0
        self._states: dict[str, str] = {}

    def state(self, name: str) -> str | None:
        with self._lock:
            if time.monotonic() - self._asked > _EVERY:
                self._states = {each.name: each.state for each in self._adb.attached()}
                self._asked = time.monotonic()
            return self._states.get(name)

    def wait_online(
        self, name: str, seconds: float, waiting: Callable[[str], None], while_away: str | None = None
    ) -> None:
        """Raises GoneError with what was still to be done. `while_away`: why it may be away without anybody's fault."""
        deadline = time.monotonic() + seconds
        while not Attached(name, state := self.state(name) or "").online:
            if time.monotonic() > deadline:
                raise GoneError(f"adb could not reach it in {seconds:g} s", remedy=what_to_do(state or None))
            waiting(while_away if while_away and state in _AWAY else what_to_do(state or None))
            if not state and ":" in name:  # reached over a network: adb forgets those
                self._adb.connect(name)
            time.sleep(_EVERY)
