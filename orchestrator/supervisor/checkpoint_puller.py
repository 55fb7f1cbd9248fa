"""Brings a run's checkpoints here as they are written, beside the watching."""

from __future__ import annotations

import threading
from collections.abc import Callable

from orchestrator.errors import ClusterctlError
from orchestrator.records.events import Event


class Puller:
    """One at a time, the newest that is known. What does not arrive is asked for again when the run is over."""

    def __init__(self, fetch: Callable[[Event], object]) -> None:
        self._fetch = fetch
        self._wanted: Event | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def pull(self, event: Event) -> None:
        with self._lock:
            self._wanted = event
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while event := self._take():
            try:
                self._fetch(event)
            except (ClusterctlError, OSError):
                continue

    def _take(self) -> Event | None:
        with self._lock:
            event, self._wanted = self._wanted, None
            return event

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
