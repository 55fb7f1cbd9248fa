"""Fetches the checkpoints of a run to this computer as they are written, in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable

from orchestrator.errors import ClusterctlError
from orchestrator.records.events import CheckpointEvent


class CheckpointPuller:
    """Fetches one checkpoint at a time, always the newest. A failure is ignored: it is fetched when the run is over."""

    def __init__(self, fetch: Callable[[CheckpointEvent], object]) -> None:
        self._fetch = fetch
        self._newest: CheckpointEvent | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def pull(self, event: CheckpointEvent) -> None:
        with self._lock:
            self._newest = event
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._fetch_all, daemon=True)
                self._thread.start()

    def _fetch_all(self) -> None:
        while event := self._next():
            try:
                self._fetch(event)
            except (ClusterctlError, OSError):
                continue

    def _next(self) -> CheckpointEvent | None:
        with self._lock:
            event, self._newest = self._newest, None
            return event

    def close(self) -> None:
        """Wait for the fetch that is under way."""
        if self._thread is not None:
            self._thread.join()
