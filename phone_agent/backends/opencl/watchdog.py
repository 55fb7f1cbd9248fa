"""Watchdog: waits for the device with a timeout, since a driver that hangs would hang the whole run."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

HANG_SECONDS = 120.0  # without a finished kernel: no kernel of ours takes that long
EXIT_CODE = 75


def end_process(message: str) -> None:
    """Exit at once: any further call of the driver would block."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


@dataclass(eq=False)
class _Wait:
    """A pending wait for these events. `finished` of them are complete, the last one since `since`."""

    started: Sequence[tuple[str, Any]]
    finished: int = 0
    since: float = field(default_factory=time.monotonic)

    def update(self) -> None:
        while self.finished < len(self.started) and _is_finished(self.started[self.finished][1]):
            self.finished, self.since = self.finished + 1, time.monotonic()

    def hangs(self, limit: float) -> bool:
        return self.finished < len(self.started) and time.monotonic() - self.since >= limit


class Watchdog:
    """One per device, with a polling thread. Kernels finish in the order in which they were started."""

    def __init__(self, device: str, limit: float = HANG_SECONDS, on_hang: Callable[[str], None] = end_process) -> None:
        self._device, self._limit, self._on_hang = device, limit, on_hang
        self._waits: list[_Wait] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="opencl-watchdog")
        self._thread.start()

    def wait(self, started: Sequence[tuple[str, Any]]) -> None:
        """Wait for the last of these events. Each comes with the name of its op."""
        if not started:
            return
        wait = _Wait(started)
        with self._changed:
            self._waits.append(wait)
            self._changed.notify()
        try:
            started[-1][1].wait()
        finally:
            with self._changed:
                self._waits.remove(wait)

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waits)
                waits = list(self._waits)
            for wait in waits:
                wait.update()
                if wait.hangs(self._limit):
                    name, seconds = wait.started[wait.finished][0], f"{self._limit:.0f} s"
                    self._on_hang(
                        f"OpenCL device {self._device} hangs: '{name}' did not finish within {seconds}; giving up"
                    )
            time.sleep(self._limit / 8)


def _is_finished(event: Any) -> bool:
    status: int = event.command_execution_status
    return status <= 0  # complete or failed; `wait` raises if it failed
