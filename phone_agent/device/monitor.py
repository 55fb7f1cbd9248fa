"""Looks at the phone beside the training: a thread of low priority that no step ever waits for."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any

from phone_agent.device import affinity, cpu, thermal
from phone_agent.device.battery import read_battery
from phone_agent.device.condition import Condition
from phone_agent.device.policy import Policy, Readings
from phone_agent.device.roots import REAL, Roots

EVERY_S = 5.0  # what the kernel shows in files
ASK_EVERY_S = 30.0  # what takes a program, which may hang for some seconds
LOWEST_PRIORITY = 19


class Monitor:
    """`condition` is the latest; nothing is known before the first look, a few milliseconds after the start."""

    def __init__(self, roots: Roots = REAL) -> None:
        self.condition = Condition()
        self._roots, self._policy = roots, Policy()
        self._battery: dict[str, Any] | None = None
        self._service_c: float | None = None
        self._closing = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="monitor").start()

    def close(self) -> None:
        """Does not wait for it: it may be asking something that hangs."""
        self._closing.set()

    def _run(self) -> None:
        affinity.use_little_cores()
        with suppress(OSError):
            os.nice(LOWEST_PRIORITY)  # of the calling thread only, on Linux
        asked = -ASK_EVERY_S
        self._look()
        while not self._closing.is_set():
            if time.monotonic() - asked >= ASK_EVERY_S:
                asked = time.monotonic()
                self._ask()
            self._look()
            self._closing.wait(EVERY_S)

    def _ask(self) -> None:
        self._battery = read_battery()
        service = None if thermal.from_zones(self._roots) else thermal.from_service(self._roots)
        self._service_c = service.celsius if service else None

    def _look(self) -> None:
        zones = thermal.from_zones(self._roots)
        now, most = cpu.frequency_mhz(self._roots)
        readings = Readings(zones.celsius if zones else self._service_c, self._battery, now, most)
        self.condition = self._policy.judge(readings, time.monotonic())
