"""State of a provision while it runs: facts and results of each phone. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from orchestrator.inventory.model import Phone
from orchestrator.provision.engine import Event, Note, OnEvent, StepFinished, StepResult, StepStatus
from orchestrator.provision.report import PhoneProvisionReport
from orchestrator.provision.termux_facts import TermuxFacts


class ProvisionProgress:
    def __init__(self, phones: Iterable[Phone], on_event: OnEvent) -> None:
        self._reports = {phone: PhoneProvisionReport(phone) for phone in phones}
        self._notes: list[str] = []
        self._on_event = on_event
        self._lock = threading.Lock()
        self.facts: dict[Phone, TermuxFacts] = {}

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

    def finish_steps(self, phone: Phone, *results: StepResult) -> None:
        """Record the results and announce them."""
        for result in results:
            self.emit(StepFinished(phone, result))
        self.record(phone, *results)

    def fail(self, phone: Phone, step: str, error: str, remedy: str | None = None, seconds: float = 0.0) -> None:
        self.finish_steps(phone, StepResult(step, StepStatus.FAILED, seconds, error=error, remedy=remedy))

    def warn(self, phone: Phone, warnings: tuple[str, ...]) -> None:
        with self._lock:
            report = self._reports[phone]
            self._reports[phone] = replace(report, warnings=(*report.warnings, *warnings))

    @property
    def working(self) -> tuple[Phone, ...]:
        """Phones whose facts are known and that have not failed, in ring order."""
        return tuple(phone for phone, report in self._reports.items() if phone in self.facts and not report.failure)

    @property
    def reports(self) -> tuple[PhoneProvisionReport, ...]:
        return tuple(self._reports.values())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)
