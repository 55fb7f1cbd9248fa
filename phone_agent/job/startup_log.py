"""Where a rank is in its start-up: a line per phase in a file of its attempt, read by `probe`."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.files import read_tail
from phone_agent.contract.startup import StartupPhase


@dataclass(frozen=True)
class StartupLog:
    """Written by the rank. Without space on the disk nothing is recorded."""

    directory: Path

    def enter(self, phase: StartupPhase, *, expected_s: float = 0.0) -> None:
        """`expected_s`: roughly how long the phase takes on a fast phone, if known."""
        line = json.dumps({"phase": phase, "time": time.time(), "expected_s": round(expected_s, 6)})
        with suppress(OSError), (self.directory / layout.STARTUP_FILE).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_phase(directory: Path) -> tuple[StartupPhase, float] | None:
    """The phase that the rank is in, and how long it is expected to take. None: the rank has not started."""
    for line in reversed(read_tail(directory / layout.STARTUP_FILE, size=512)):
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            return StartupPhase(entry["phase"]), float(entry["expected_s"])
    return None
