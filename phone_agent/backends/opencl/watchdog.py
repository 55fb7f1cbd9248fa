"""Waits for the device, but not for ever: a driver that hangs would hang the whole run with it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

HANG_SECONDS = 120.0  # without one more kernel done: no kernel of ours takes that long
EXIT_CODE = 75


def end_process(message: str) -> None:
    """At once: nothing that asks the driver for anything would come back."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


@dataclass(eq=False)
class _Wait:
    """Somebody waits for these events, of which `over` have come since `since`."""

    started: Sequence[tuple[str, Any]]
    over: int = 0
    since: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        while self.over < len(self.started) and _over(self.started[self.over][1]):
            self.over, self.since = self.over + 1, time.monotonic()

    def hangs(self, limit: float) -> bool:
        return self.over < len(self.started) and time.monotonic() - self.since >= limit


class Watchdog:
    """One a device, with a thread that looks now and then. Kernels end in the order they were started in."""

    def __init__(self, device: str, limit: float = HANG_SECONDS, on_hang: Callable[[str], None] = end_process) -> None:
        self._device, self._limit, self._on_hang = device, limit, on_hang
        self._waits: list[_Wait] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="opencl-watchdog")
        self._thread.start()

    def wait(self, started: Sequence[tuple[str, Any]]) -> None:
        """Until the last of these events is over; each with the name of its step."""
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
                wait.look()
                if wait.hangs(self._limit):
                    name, seconds = wait.started[wait.over][0], f"{self._limit:.0f} s"
                    self._on_hang(f"OpenCL device {self._device} hangs: no end of '{name}' for {seconds}; giving up")
            time.sleep(self._limit / 8)


def _over(event: Any) -> bool:
    status: int = event.command_execution_status
    return status <= 0  # complete, or failed: `wait` says which
