"""The state of a provision while it runs: what is known and done of each phone. Shared by all threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from orchestrator.inventory.model import Phone
from orchestrator.provision.events import Event, Note, OnEvent, StepFinished
from orchestrator.provision.facts import Facts
from orchestrator.provision.report import PhoneReport, StepResult, StepStatus


class Ledger:
    def __init__(self, phones: Iterable[Phone], on_event: OnEvent) -> None:
        self._reports = {phone: PhoneReport(phone) for phone in phones}
        self._notes: list[str] = []
        self._on_event = on_event
        self._lock = threading.Lock()
        self.facts: dict[Phone, Facts] = {}

    def emit(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, Note):
                self._notes.append(event.message)
            self._on_event(event)

    def note(self, message: str) -> None:
        self.emit(Note(message))

    def record(self, phone: Phone, *results: StepResult) -> None:
        with self._lock:
            self._reports[phone] = self._reports[phone].with_steps(*results)

    def fail(self, phone: Phone, step: str, error: str, remedy: str | None = None, seconds: float = 0.0) -> None:
        result = StepResult(step, StepStatus.FAILED, seconds, error=error, remedy=remedy)
        self.record(phone, result)
        self.emit(StepFinished(phone, result))

    def warn(self, phone: Phone, warnings: tuple[str, ...]) -> None:
        with self._lock:
            report = self._reports[phone]
            self._reports[phone] = PhoneReport(phone, report.steps, (*report.warnings, *warnings))

    @property
    def working(self) -> tuple[Phone, ...]:
        """Phones that answered and have not failed, in ring order."""
        return tuple(phone for phone, report in self._reports.items() if phone in self.facts and not report.failure)

    @property
    def reports(self) -> tuple[PhoneReport, ...]:
        return tuple(self._reports.values())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)
