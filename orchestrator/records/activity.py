"""What the supervisor of a run is doing at the moment: a small file in the directory of the run, replaced as a whole.

Events and incidents say what has happened; this says what has not happened yet, for whoever shows the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phone_agent.contract.files import read_json, write_json

FILE = "activity.json"
_WRITE_EVERY_S = 0.25  # while phones are counted


@dataclass(frozen=True)
class Activity:
    phases: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # of a restart: phones done, phones in total
    doing: str = ""  # anything else that takes a while
    problem: str = ""  # why the run cannot be followed; the supervisor keeps trying
    unable: Mapping[str, str] | None = None  # phones that cannot take part in a restart, and why; None: not known


class ActivityFile:
    """Written by the supervisor of the run alone."""

    def __init__(self, run_directory: Path) -> None:
        self._path = run_directory / FILE
        self._phases: dict[str, tuple[int, int]] = {}
        self._doing = self._problem = ""
        self._unable: Mapping[str, str] | None = None
        self._written_at = 0.0

    def report_phase(self, what: str, done: int, total: int) -> None:
        self._phases[what] = (done, total)
        if done in {0, total} or time.monotonic() - self._written_at > _WRITE_EVERY_S:
            self._write()

    def report(self, doing: str) -> None:
        self._doing = doing
        self._write()

    def report_problem(self, problem: str) -> None:
        """Empty: the run can be followed."""
        if problem != self._problem:
            self._problem = problem
            self._write()

    def report_unable(self, phones: Mapping[str, str]) -> None:
        if phones != self._unable:
            self._unable = phones
            self._write()

    def clear(self) -> None:
        """Nothing but following the run."""
        if self._phases or self._doing or self._problem or self._unable is not None or not self._written_at:
            self._phases, self._doing, self._problem, self._unable = {}, "", "", None
            self._write()

    def _write(self) -> None:
        self._written_at = time.monotonic()
        unable = None if self._unable is None else dict(self._unable)
        current = {"phases": self._phases, "doing": self._doing, "problem": self._problem, "unable": unable}
        write_json(self._path, current)


def read_activity(run_directory: Path) -> Activity:
    """Empty if there is none, or if it is damaged."""
    raw = read_json(run_directory / FILE)
    try:
        return _parse(raw) if isinstance(raw, dict) else Activity()
    except (KeyError, TypeError, ValueError, AttributeError):
        return Activity()


def _parse(raw: dict[str, Any]) -> Activity:
    phases = {str(what): (int(done), int(total)) for what, (done, total) in raw["phases"].items()}
    unable = raw["unable"]
    problems = None if unable is None else {str(name): str(why) for name, why in unable.items()}
    return Activity(phases, str(raw["doing"]), str(raw["problem"]), problems)
