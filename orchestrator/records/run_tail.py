"""Reads the files of a run while its supervisor writes them: events of all attempts, incidents, and the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.records.activity import Activity, read_activity
from orchestrator.records.events import Event, IncidentEvent, Progress, parse_event, parse_incident
from orchestrator.records.record import RunStore

_WITHOUT_EVENTS = frozenset({"recovering", "interrupted"})  # states that only the record reports


E = TypeVar("E", bound=Event)


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

    def _begin_attempt(self, attempt: int) -> None:
        run_id = self.record.run_id
        self._attempt, self.spec = attempt, self._store.spec(run_id, attempt)
        self._events = EventTail(self._store.events_file(run_id, attempt), parse_event)
        self.progress.state, self.progress.error = "starting", None

    def _read_attempt(self) -> Iterator[Event]:
        """Events of the attempt, then the incidents up to the next one."""
        yield from self._events.poll()
        known, self._later = self._later, []
        for incident in known:
            if incident.attempt <= self._attempt:
                yield incident
            else:
                self._later.append(incident)

    def _update(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self.progress.update(event)
            yield event
