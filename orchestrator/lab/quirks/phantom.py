"""The phantom process killer of Android 12: if an app has more than 32 processes, the oldest are killed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.processes import Process, descendants, kill

LIMIT = 32
_INTERVAL_S = 0.5  # Android checks on events such as battery and wake lock changes


@dataclass
class PhantomKiller:
    log: Path  # shown by logcat
    user: str
    enabled: bool = False
    _next_check: float = 0.0

    def tick(self, now: float) -> float | None:
        """Check periodically. Return the seconds until the next check, or None if disabled."""
        if not self.enabled:
            return None
        if now >= self._next_check:
            self._trim()
            self._next_check = now + _INTERVAL_S
        return self._next_check - now

    def _trim(self) -> None:
        alive = [process for process in descendants(os.getpid()) if not process.is_zombie]
        by_age = sorted(alive, key=lambda process: process.started)
        for process in by_age[: max(0, len(alive) - LIMIT)]:
            kill(process.pid, signal.SIGKILL)
            self._record(process)

    def _record(self, process: Process) -> None:
        record = f"{{{process.started:07x} {process.pid}:{process.name}/{self.user.replace('_', '')}}}"
        stamp = time.strftime("%m-%d %H:%M:%S.000  1000  1500  1500")
        with self.log.open("a") as log:
            log.write(f"{stamp} I ActivityManager: Killing PhantomProcessRecord {record}: Trimming phantom processes\n")
