"""Monitors the phone during training, in a low-priority thread that no training step waits for."""

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
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths

SYSFS_INTERVAL_S = 5.0  # reads files of the kernel
COMMAND_INTERVAL_S = 30.0  # runs programs, which may hang for some seconds
LOWEST_PRIORITY = 19


class Monitor:
    """`condition` is the latest; all values are unknown until the first reading, a few milliseconds after the start."""

    def __init__(self, paths: SystemPaths = DEFAULT_PATHS) -> None:
        self.condition = Condition()
        self._paths, self._policy = paths, Policy()
        self._battery: dict[str, Any] | None = None
        self._service_c: float | None = None
        self._closing = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="monitor").start()

    def close(self) -> None:
        """Does not join the thread: a program that it runs may hang."""
        self._closing.set()

    def _run(self) -> None:
        affinity.pin_to_little_cores()
        with suppress(OSError):
            os.nice(LOWEST_PRIORITY)  # on Linux: the calling thread only
        last_command = -COMMAND_INTERVAL_S
        self._read_sysfs()
        while not self._closing.is_set():
            if time.monotonic() - last_command >= COMMAND_INTERVAL_S:
                last_command = time.monotonic()
                self._run_commands()
            self._read_sysfs()
            self._closing.wait(SYSFS_INTERVAL_S)

    def _run_commands(self) -> None:
        self._battery = read_battery()
        service = None if thermal.from_zones(self._paths) else thermal.from_service(self._paths)
        self._service_c = service.celsius if service else None

    def _read_sysfs(self) -> None:
        zones = thermal.from_zones(self._paths)
        current, maximum = cpu.frequency_mhz(self._paths)
        readings = Readings(zones.celsius if zones else self._service_c, self._battery, current, maximum)
        self.condition = self._policy.evaluate(readings, time.monotonic())
