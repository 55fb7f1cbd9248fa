"""The results of a selftest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.inventory.model import Phone
from phone_agent.contract.assumptions import Assumption, CheckResult, Status


@dataclass(frozen=True)
class AssumptionResult:
    """The result of checking one assumption on one phone."""

    assumption: Assumption
    status: Status
    detail: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def blocks_training(self) -> bool:
        return self.assumption.required and self.status is not Status.OK

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.assumption.name,
            "statement": self.assumption.statement,
            "required": self.assumption.required,
            "status": self.status.value,
            "detail": self.detail,
            "seconds": round(self.seconds, 2),
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True)
class PhoneReport:
    phone: Phone
    virtual: bool
    results: tuple[AssumptionResult, ...]
    error: str | None = None  # why the selftest did not finish
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        """Every requirement of training is met."""
        return self.error is None and not any(result.blocks_training for result in self.results)

    def count(self) -> dict[str, int]:
        counts = Counter(result.status for result in self.results)
        return {status.value: counts[status] for status in Status}


def assess(assumption: Assumption, result: CheckResult, seconds: float, *, virtual: bool) -> AssumptionResult:
    """A result that a virtual phone merely simulates counts as unknown."""
    if virtual and assumption.lab_caveat:
        detail = f"not testable on a virtual phone ({assumption.lab_caveat}); result: {result.detail}"
        return AssumptionResult(assumption, Status.UNKNOWN, detail, result.evidence, seconds)
    return AssumptionResult(assumption, result.status, result.detail, result.evidence, seconds)
