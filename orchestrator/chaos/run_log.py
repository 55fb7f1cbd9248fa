"""The progress of a run under chaos, read from the files that its supervisor writes on this computer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.records.causes import Cause
from orchestrator.records.events import Event, IncidentEvent, StepEvent, parse_event, parse_incident
from orchestrator.records.incidents import IncidentKind
from orchestrator.records.record import RunStore
from orchestrator.records.run_tail import EventTail


@dataclass(frozen=True)
class Step:
    attempt: int
    number: int
    loss: float | None
    reported_at: float  # by the clock of the head phone
    received_at: float  # by the clock of this computer


@dataclass(frozen=True)
class Incident:
    message: str
    received_at: float
    detected_at: float | None = None  # when the first sign of a fault was seen
    phases: Mapping[str, float] = field(default_factory=dict)  # of a recovery, in seconds
    kind: str = ""  # an IncidentKind
    cause: Cause | None = None  # why
    phones: tuple[str, ...] = ()  # that are blamed
    diagnosis: str = ""  # the same for a person

    @property
    def restarting(self) -> bool:
        """Whether it says that the next attempt is being started."""
        return self.kind == IncidentKind.RESTARTING


@dataclass
class RunLog:
    """Of a run, and of the runs that resume from its last checkpoint. Attempts are counted across all of them."""

    store: RunStore
    run_id: str
    clock: Callable[[], float] = time.time
    steps: list[Step] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    phones: list[tuple[str, ...]] = field(default_factory=list)  # of each attempt, in rank order
    _earlier: int = 0  # attempts of earlier runs
    _events: dict[Path, EventTail[Event]] = field(default_factory=dict)
    _incidents: dict[Path, EventTail[IncidentEvent]] = field(default_factory=dict)

    def update(self) -> None:
        """Read what is new."""
        now = self.clock()
        while self._read_attempt():
            pass
        for attempt in range(self._earlier, len(self.phones)):
            events = self.store.events_file(self.run_id, attempt - self._earlier)
            for event in self._events.setdefault(events, EventTail(events, parse_event)).poll():
                if isinstance(event, StepEvent):
                    self.steps.append(Step(attempt, event.step, event.loss, event.time, now))
        incidents = self.store.incidents_file(self.run_id)
        for incident in self._incidents.setdefault(incidents, EventTail(incidents, parse_incident)).poll():
            self.incidents.append(_read_incident(incident, now))

    def continue_with(self, run_id: str) -> None:
        """Another run resumes from this one, which is over."""
        self.update()
        self.run_id, self._earlier = run_id, len(self.phones)
        self.update()

    @property
    def attempt(self) -> int:
        return len(self.phones) - 1

    @property
    def run_attempt(self) -> int:
        """The newest attempt, counted in its own run."""
        return self.attempt - self._earlier

    @property
    def last_step(self) -> int:
        return max((step.number for step in self.steps), default=0)

    @property
    def is_training(self) -> bool:
        """Whether the newest attempt has completed a step."""
        return bool(self.steps) and self.steps[-1].attempt == self.attempt

    def steps_since(self, received_at: float) -> list[Step]:
        return [step for step in self.steps if step.received_at > received_at]

    def _read_attempt(self) -> bool:
        try:
            spec = self.store.spec(self.run_id, len(self.phones) - self._earlier)
        except UsageError:  # there is none yet
            return False
        self.phones.append(tuple(rank.phone for rank in spec.ranks))
        return True


def _read_incident(event: IncidentEvent, now: float) -> Incident:
    return Incident(
        event.message,
        now,
        event.detected_at,
        event.phases,
        kind=event.incident,
        cause=event.cause,
        phones=event.phones,
        diagnosis=event.diagnosis,
    )
