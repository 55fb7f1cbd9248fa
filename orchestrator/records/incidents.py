"""Failures of a run and how it recovered from them: a JSON lines file beside the record of the run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.records.events import Event, parse_event


class IncidentKind(StrEnum):
    RESTARTING = "restarting"  # the next attempt is being started; `cause` and `phones` say why, after a failure
    RESUMED = "resumed"  # the next attempt has completed a step
    WAITING = "waiting"  # too few phones answer; the run continues once they are back
    REJOINING = "rejoining"  # phones that answer again take part from the next step on
    CHECKPOINT_SKIPPED = "checkpoint_skipped"  # it is damaged
    CHECKPOINT_MISSING = "checkpoint_missing"  # the last one of the run is not on this computer
    STATE_LOST = "state_lost"  # no phone has the training state in memory


class Incidents:
    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: IncidentKind, message: str, **fields: Any) -> Event:
        now = time.time()
        incident = {"event": "incident", "time": now, "kind": kind, "message": message, **fields}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(incident) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return Event("incident", now, fields=incident)

    def after(self, attempt: int) -> Iterator[Event]:
        """Incidents between this attempt and the next."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        return (event for line in lines if (event := parse_event(line)) and event.fields.get("attempt") == attempt)
