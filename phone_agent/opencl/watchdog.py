"""Waits for the device, but not for ever: a driver that hangs would hang the whole run with it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

HANG_SECONDS = 120.0  # without one more kernel done: no kernel of ours takes that long
EXIT_CODE = 75


def end_process(message: str) -> None:
    """At once: nothing that asks the driver for anything would come back."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


class Watchdog:
    """One a device. Kernels are awaited in the order they were started in."""

    def __init__(self, device: str, limit: float = HANG_SECONDS, on_hang: Callable[[str], None] = end_process) -> None:
        self._device, self._limit, self._on_hang = device, limit, on_hang
        self._awaited: Sequence[tuple[str, Any]] = ()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def wait(self, started: Sequence[tuple[str, Any]]) -> None:
        """Until the last of these events is over; each with the name of its step."""
        if not started:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True, name="opencl-watchdog")
            self._thread.start()
        self._await(started)
        try:
            started[-1][1].wait()
        finally:
            self._await(())

    def _await(self, started: Sequence[tuple[str, Any]]) -> None:
        with self._changed:
            self._awaited = started
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._awaited)
                awaited = self._awaited
            self._follow(awaited)

    def _follow(self, awaited: Sequence[tuple[str, Any]]) -> None:
        """Until nobody waits for these any more."""
        over, since = 0, time.monotonic()
        while self._awaited is awaited:
            with self._changed:
                self._changed.wait_for(lambda: self._awaited is not awaited, timeout=self._limit / 8)
            now = next((place for place, (_, event) in enumerate(awaited) if not _over(event)), len(awaited))
            if now > over:
                over, since = now, time.monotonic()
            elif now < len(awaited) and time.monotonic() - since >= self._limit:
                name, seconds = awaited[now][0], f"{self._limit:.0f} s"
                self._on_hang(f"OpenCL device {self._device} hangs: no end of '{name}' for {seconds}; giving up")
                return


def _over(event: Any) -> bool:
    status: int = event.command_execution_status
    return status <= 0  # complete, or failed: `wait` says which
