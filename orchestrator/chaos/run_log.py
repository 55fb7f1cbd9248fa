"""A run as this computer hears of it while chaos goes on: attempts, steps, incidents, and when they were heard."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.records.causes import Cause, parse_cause
from orchestrator.records.events import Event, parse_event
from orchestrator.records.incidents import IncidentKind
from orchestrator.records.record import RunStore


@dataclass(frozen=True)
class Step:
    attempt: int
    number: int
    loss: float | None
    told: float  # by the head phone's clock
    heard: float  # by this computer's


@dataclass(frozen=True)
class Said:
    """An incident."""

    message: str
    heard: float
    noticed: float | None = None  # when the first sign was seen of what it tells
    phases: Mapping[str, float] = field(default_factory=dict)  # of what was lost, where it tells that
    restarting: bool = False  # it says that the next attempt is started
    cause: Cause | None = None  # why
    phones: tuple[str, ...] = ()  # that are to blame
    diagnosis: str = ""  # the same for a person


@dataclass
class Chronicle:
    store: RunStore
    run_id: str
    clock: Callable[[], float] = time.time
    steps: list[Step] = field(default_factory=list)
    incidents: list[Said] = field(default_factory=list)
    phones: list[tuple[str, ...]] = field(default_factory=list)  # of each attempt, in rank order
    _read: dict[Path, int] = field(default_factory=dict)

    def listen(self) -> None:
        """Takes in what is new."""
        now = self.clock()
        while self._take_attempt():
            pass
        for attempt in range(len(self.phones)):
            for event in self._news(self.store.events_file(self.run_id, attempt)):
                if event.kind == "step":
                    self.steps.append(_step(event, attempt, now))
        for event in self._news(self.store.incidents_file(self.run_id)):
            self.incidents.append(_said(event, now))

    @property
    def attempt(self) -> int:
        return len(self.phones) - 1

    @property
    def last_step(self) -> int:
        return max((step.number for step in self.steps), default=0)

    @property
    def is_training(self) -> bool:
        """The newest attempt has done a step."""
        return bool(self.steps) and self.steps[-1].attempt == self.attempt

    def since(self, heard: float) -> list[Step]:
        return [step for step in self.steps if step.heard > heard]

    def _take_attempt(self) -> bool:
        try:
            spec = self.store.spec(self.run_id, len(self.phones))
        except UsageError:  # there is none yet
            return False
        self.phones.append(tuple(rank.phone for rank in spec.ranks))
        return True

    def _news(self, path: Path) -> list[Event]:
        """Whole lines only."""
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        return [event for line in whole.splitlines() if (event := parse_event(line))]


def _said(event: Event, now: float) -> Said:
    phones = event.fields.get("phones")
    return Said(
        event.text("message"),
        now,
        event.number("detected_at"),
        event.fields.get("phases", {}),
        restarting=event.fields.get("kind") == IncidentKind.RESTARTING,
        cause=parse_cause(event.fields.get("cause")),
        phones=tuple(map(str, phones)) if isinstance(phones, list) else (),
        diagnosis=event.text("diagnosis"),
    )


def _step(event: Event, attempt: int, now: float) -> Step:
    return Step(attempt, round(event.number("step") or 0), event.number("loss"), event.time, now)
