"""How a phone is doing right now. Never fails, answers within 8 s; what cannot be read is null."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from phone_agent.device import cpu, facts, memory, thermal
from phone_agent.device.battery import read_battery
from phone_agent.device.roots import REAL, Roots


def collect(roots: Roots = REAL, battery_cache: Path | None = None) -> dict[str, Any]:
    with ThreadPoolExecutor(max_workers=1) as aside:
        battery = aside.submit(read_battery, battery_cache)  # slow, so it runs while the rest is read
        now, most = cpu.frequency_mhz(roots)
        temperature = thermal.read_temperature(battery.result, roots)
        return {
            "epoch": time.time(),
            "temperature_c": temperature.celsius if temperature else None,
            "temperature_source": temperature.source if temperature else None,
            "battery": battery.result(),
            "frequency_mhz": now,
            "frequency_max_mhz": most,
            "memory_free_mb": memory.available_mb(roots),
            "disk_free_mb": memory.free_disk_mb(Path.home()),
            "cpus_allowed": cpu.allowed(roots),
            "agent": facts.agent(),
        }
