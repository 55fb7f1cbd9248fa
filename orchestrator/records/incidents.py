"""Failures of a run and how it recovered from them: a JSON lines file beside the record of the run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.records.events import IncidentEvent, parse_incident
from phone_agent.contract.decode import decode_json


class IncidentKind(StrEnum):
    RESTARTING = "restarting"  # the next attempt is being started; `cause` and `phones` say why, after a failure
    RESUMED = "resumed"  # the next attempt has completed a step
    WAITING = "waiting"  # too few phones answer; the run continues once they are back
    REJOINING = "rejoining"  # phones that answer again take part from the next step on
    REJOIN_FAILED = "rejoin_failed"  # it is tried again later
    CHECKPOINT_SKIPPED = "checkpoint_skipped"  # it is damaged
    CHECKPOINT_MISSING = "checkpoint_missing"  # the last one of the run is not on this computer
    STATE_LOST = "state_lost"  # steps are computed again, because no phone of the next attempt has them in memory


class Incidents:
    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: IncidentKind, message: str, **fields: Any) -> IncidentEvent:
        incident = {"event": "incident", "time": time.time(), "incident": kind, "message": message, **fields}
        line = json.dumps(incident)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        return decode_json(IncidentEvent, line)

    def after(self, attempt: int) -> Iterator[IncidentEvent]:
        """Incidents between this attempt and the next."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        return (event for line in lines if (event := parse_incident(line)) and event.attempt == attempt)
