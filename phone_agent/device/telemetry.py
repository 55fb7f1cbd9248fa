"""The current state of a phone. Never fails and responds within 8 s; unreadable values are null."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from phone_agent.device import cpu, facts, memory, thermal
from phone_agent.device.battery import read_battery
from phone_agent.device.system import DEFAULT_PATHS, SystemPaths


def collect(paths: SystemPaths = DEFAULT_PATHS, battery_cache: Path | None = None) -> dict[str, Any]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        battery = executor.submit(read_battery, battery_cache)  # slow, so it runs in parallel
        current, maximum = cpu.frequency_mhz(paths)
        temperature = thermal.read_temperature(battery.result, paths)
        return {
            "epoch": time.time(),
            "temperature_c": temperature.celsius if temperature else None,
            "temperature_source": temperature.source if temperature else None,
            "battery": battery.result(),
            "frequency_mhz": current,
            "frequency_max_mhz": maximum,
            "memory_free_mb": memory.available_mb(paths),
            "disk_free_mb": memory.free_disk_mb(Path.home()),
            "cpus_allowed": cpu.allowed(paths),
            "agent": facts.agent(),
        }
