"""Watchdog: ends the process if the driver hangs, in a kernel or in a call, since that would hang the whole run."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

HANG_SECONDS = 120.0  # without a finished kernel or call: none of ours takes that long
GIL_HELD_SECONDS = 2 * HANG_SECONDS  # some calls of pyopencl hold the GIL, so the watchdog thread cannot run
POLLS = 8  # within the time limit. Counted instead of seconds: a process that was stopped meanwhile does not hang
EXIT_CODE = 75
STDERR = 2

Started = Sequence[tuple[str, Any]]  # the name of an op, and the event of its last launch

_before_exit: list[Callable[[str], None]] = []


def call_before_exit(report: Callable[[str], None]) -> None:
    """Call `report` with the message before the process ends because of a hang."""
    _before_exit.append(report)


def end_process(message: str) -> None:
    """Exit at once: any further call of the driver would block."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    try:
        for report in _before_exit:
            report(message)
    finally:
        os._exit(EXIT_CODE)


class _Activity(Protocol):
    def poll(self) -> str:
        """What it waits for if that has not changed for the whole time limit, otherwise an empty string."""
        ...


@dataclass(eq=False)
class Call:
    """A call of the driver, or several in a row: `begin` each."""

    name: str
    polls: int = 0

    def begin(self, name: str) -> None:
        self.name, self.polls = name, 0

    def poll(self) -> str:
        self.polls += 1
        return self.name if self.polls > POLLS else ""


@dataclass(eq=False)
class _Wait:
    """A wait for these events. Kernels finish in the order in which they were started; `finished` of them have."""

    started: Started
    finished: int = 0
    polls: int = 0

    def poll(self) -> str:
        self.polls += 1
        while self.finished < len(self.started) and _is_finished(self.started[self.finished][1]):
            self.finished, self.polls = self.finished + 1, 0
        is_overdue = self.polls > POLLS and self.finished < len(self.started)
        return self.started[self.finished][0] if is_overdue else ""


class Watchdog:
    """One per device, with a polling thread."""

    def __init__(
        self,
        device: str,
        limit: float = HANG_SECONDS,
        on_hang: Callable[[str], None] = end_process,
        gil_limit: float = GIL_HELD_SECONDS,
    ) -> None:
        self._device, self._limit, self._on_hang, self._gil_limit = device, limit, on_hang, gil_limit
        self._activities: list[_Activity] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="opencl-watchdog")
        self._thread.start()

    def wait(self, started: Started) -> None:
        """Wait for the last of these events."""
        if started:
            with self._watching(_Wait(started)):
                started[-1][1].wait()

    @contextmanager
    def call(self, name: str) -> Iterator[Call]:
        """Watch the calls of the driver in this block."""
        call = Call(name)
        with self._watching(call):
            yield call

    @contextmanager
    def _watching(self, activity: _Activity) -> Iterator[None]:
        with self._changed:
            self._activities.append(activity)
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._activities.remove(activity)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._activities:
                    faulthandler.cancel_dump_traceback_later()
                    self._changed.wait_for(lambda: self._activities)
                activities = list(self._activities)
            # If this thread cannot run any more, a timer in C prints where the process hangs, and ends it.
            faulthandler.dump_traceback_later(self._gil_limit, exit=True, file=STDERR)
            for activity in activities:
                if stuck := activity.poll():
                    self._on_hang(
                        f"OpenCL device {self._device} hangs: '{stuck}' did not finish within {self._limit:.0f} s; "
                        "giving up. Reboot the phone if this happens again"
                    )
            time.sleep(self._limit / POLLS)


def _is_finished(event: Any) -> bool:
    """Complete or failed: `wait` raises if it failed."""
    try:
        status: int = event.command_execution_status
    except Exception:  # noqa: BLE001 - a driver that lost its device: either `wait` raises as well, or it hangs
        return False
    return status <= 0
