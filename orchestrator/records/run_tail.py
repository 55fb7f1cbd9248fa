"""Reads the files of a run while its supervisor writes them: events of all attempts, incidents, and the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.records.activity import Activity, read_activity
from orchestrator.records.events import Event, IncidentEvent, Progress, StepEvent, parse_event, parse_incident
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.records.run_status import RunStatus, derive_status

_WITHOUT_EVENTS = frozenset({"recovering", "interrupted"})  # states that only the record reports


E = TypeVar("E", bound=Event)


def current_status(store: RunStore, record: RunRecord, now: float) -> RunStatus:
    """From the record, without reading all events: the time left is not known, and the age of the last event counts as
    that of the last step."""
    path = store.events_file(record.run_id, record.attempt)
    arrived = path.stat().st_mtime if path.exists() else None
    progress = Progress(record.steps, step=record.step, state=record.state)
    activity = read_activity(store.directory(record.run_id))
    return derive_status(record, progress, activity, arrived, arrived if record.step else None, now)


class EventTail(Generic[E]):
    """New events of a JSON lines file that grows."""

    def __init__(self, path: Path, parse: Callable[[bytes], E | None]) -> None:
        self._path, self._parse, self._offset = path, parse, 0

    def poll(self) -> Iterator[E]:
        """From complete lines only."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                if event := self._parse(line):
                    yield event

    @property
    def written_at(self) -> float:
        return self._path.stat().st_mtime


class RunTail:
    """`record`, `spec`, `progress` and `activity` are up to date after each `poll`. `spec` is that of the newest
    attempt."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self._store = store
        self.record = store.read(run_id)
        self.spec = store.spec(run_id)
        self.progress, self.activity = Progress(self.record.steps), Activity()
        self._attempt = 0
        self._events = EventTail(store.events_file(run_id), parse_event)
        self._incidents = EventTail(store.incidents_file(run_id), parse_incident)
        self._last_event_at: float | None = None  # when it arrived here, in epoch seconds of this computer
        self._last_step_at: float | None = None
        self._later: list[IncidentEvent] = []  # incidents of attempts whose events are still to be read

    def poll(self) -> Iterator[Event]:
        """What is new. Once the record says that the run is over, everything has been returned."""
        record = self._store.read(self.record.run_id)  # before the events: it is written after them
        self._later.extend(self._incidents.poll())
        yield from self._update(self._read_attempt())
        while self._attempt < record.attempt:
            self._begin_attempt(self._attempt + 1)
            yield from self._update(self._read_attempt())
        self.record, self.activity = record, read_activity(self._store.directory(record.run_id))
        if record.over or record.state in _WITHOUT_EVENTS:
            self.progress.state = record.state

    def status(self, now: float) -> RunStatus:
        return derive_status(self.record, self.progress, self.activity, self._last_event_at, self._last_step_at, now)

    def _begin_attempt(self, attempt: int) -> None:
        run_id = self.record.run_id
        self._attempt, self.spec = attempt, self._store.spec(run_id, attempt)
        self._events = EventTail(self._store.events_file(run_id, attempt), parse_event)
        self.progress.state, self.progress.error = "starting", None

    def _read_attempt(self) -> Iterator[Event]:
        """Events of the attempt, then the incidents up to the next one."""
        yield from self._read_events()
        known, self._later = self._later, []
        for incident in known:
            if incident.attempt <= self._attempt:
                yield incident
            else:
                self._later.append(incident)

    def _read_events(self) -> Iterator[Event]:
        """Notes when the last event and the last step arrived. The file says it of the last event; how much earlier the
        step was, the clock of the phone says."""
        event_time = step_time = 0.0
        for event in self._events.poll():
            event_time = max(event_time, event.time)
            step_time = event.time if isinstance(event, StepEvent) else step_time
            yield event
        if event_time:
            self._last_event_at = self._events.written_at
        if step_time:
            self._last_step_at = self._events.written_at - max(0.0, event_time - step_time)

    def _update(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self.progress.update(event)
            yield event
