"""Probes the phones that a run has lost, in the background, so that they can rejoin it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Phone
from orchestrator.supervisor.probe import Probe, terminate
from orchestrator.supervisor.restart_policy import LONGEST_REJOIN_PROBE_S, FailureHistory

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet


class RejoinMonitor:
    """One probe at a time, in a thread of its own: it takes seconds until a phone that is off counts as silent."""

    def __init__(self, fleet: Fleet, run_id: str, lost: Sequence[Phone], history: FailureHistory) -> None:
        self._fleet, self._run_id = fleet, run_id
        now = time.monotonic()
        self._pause_s = {phone: history.rejoin_probe_s(phone.name) for phone in lost}
        self._next_probe = {phone: now + pause for phone, pause in self._pause_s.items()}
        self._thread: threading.Thread | None = None
        self._probes: tuple[Probe, ...] = ()

    def poll(self) -> tuple[Phone, ...]:
        """Phones found able to rejoin since the last call. Starts the next probe when it is due.

        A phone that does not rejoin after all is probed less and less often.
        """
        if self._thread is not None and self._thread.is_alive():
            return ()
        able, self._probes = tuple(probe.phone for probe in self._probes if not probe.problem), ()
        for phone in able:
            self._pause_s[phone] = min(LONGEST_REJOIN_PROBE_S, 2 * self._pause_s[phone])
        now = time.monotonic()
        due = [phone for phone, when in self._next_probe.items() if when <= now]
        if due and not able:
            self._next_probe.update({phone: now + self._pause_s[phone] for phone in due})
            self._thread = threading.Thread(target=self._probe, args=(due,), daemon=True)
            self._thread.start()
        return able

    def _probe(self, phones: Sequence[Phone]) -> None:
        """Also ends what a phone still runs of an attempt that has gone on without it."""
        with suppress(ClusterctlError):  # another computer supervises the run: it lets the phone rejoin
            self._probes = terminate(self._fleet, self._run_id, phones)
