"""What happened to a run's phones and what was done about it: one line each, kept beside the run's record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.records.events import Event, parse_event


class Incidents:
    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, message: str, **fields: Any) -> Event:
        told = {"event": "incident", "time": time.time(), "message": message, **fields}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        return Event("incident", time.time(), fields=told)

    def after(self, attempt: int) -> Iterator[Event]:
        """Those that came between this attempt and the next."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        return (event for line in lines if (event := parse_event(line)) and event.fields.get("attempt") == attempt)
