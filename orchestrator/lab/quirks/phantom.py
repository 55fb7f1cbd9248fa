"""Android 12's phantom process killer: of more than 32 processes the oldest die."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.processes import Process, descendants, kill

LIMIT = 32
_EVERY_S = 0.5  # Android looks when the battery, the charger or a wake lock gives it an occasion


@dataclass
class PhantomKiller:
    log: Path  # what logcat shows
    user: str
    on: bool = False
    _next: float = 0.0

    def tick(self, now: float) -> float | None:
        """Looks from time to time. Returns the seconds after which to come again, if at all."""
        if not self.on:
            return None
        if now >= self._next:
            self._trim()
            self._next = now + _EVERY_S
        return self._next - now

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
