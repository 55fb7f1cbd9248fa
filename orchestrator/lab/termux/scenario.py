"""What a virtual phone reports about itself: battery, heat, Android. One small file a key."""

from __future__ import annotations

from pathlib import Path

KEYS: tuple[str, ...] = ("battery.percentage", "thermal.cpu")


def apply_scenario(scenario: Path, sys_class: Path, key: str, value: str) -> None:
    del sys_class
    scenario.mkdir(parents=True, exist_ok=True)
    (scenario / key).write_text(f"{value}\n")
