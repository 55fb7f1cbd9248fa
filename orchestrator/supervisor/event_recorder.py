"""What the supervisor does with every event of a run: update its progress, write metrics, fetch what it announces."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orchestrator.records.events import CheckpointEvent, Event, Progress, parse_event
from orchestrator.records.incidents import IncidentKind, Incidents
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.records.tensorboard import TensorBoard
from orchestrator.supervisor.checkpoint_puller import CheckpointPuller


class EventRecorder:
    def __init__(self, store: RunStore, record: RunRecord, puller: CheckpointPuller) -> None:
        self.progress = Progress(record.steps)
        self._store, self._run_id = store, record.run_id
        self._puller = puller
        self._incidents = Incidents(store.incidents_file(record.run_id))

    def __enter__(self) -> Self:
        self._tensorboard = TensorBoard(self._store.directory(self._run_id))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._tensorboard.close()

    def record(self, event: Event) -> None:
        self.progress.update(event)
        self._tensorboard.write(event)
        if isinstance(event, CheckpointEvent):
            self._puller.pull(event)

    def replay(self, attempts: int) -> None:
        """The events and incidents of earlier attempts, as they are recorded on this computer."""
        for attempt in range(attempts):
            path = self._store.events_file(self._run_id, attempt)
            if path.exists():
                with path.open("rb") as lines:
                    for event in filter(None, map(parse_event, lines)):
                        self.record(event)
            for incident in self._incidents.after(attempt):
                self.record(incident)

    def add_incident(self, kind: IncidentKind, message: str, attempt: int, **fields: object) -> None:
        event = self._incidents.add(kind, message, attempt=attempt, **fields)
        self.progress.update(event)
