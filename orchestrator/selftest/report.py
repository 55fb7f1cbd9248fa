"""What phones answered, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.inventory.model import Phone
from phone_agent.contract.assumptions import Belief, Found, Status


@dataclass(frozen=True)
class Answer:
    """What one phone shows of one belief."""

    belief: Belief
    status: Status
    told: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def stops(self) -> bool:
        return self.belief.needed and self.status is not Status.OK

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.belief.name,
            "settles": self.belief.settles,
            "needed": self.belief.needed,
            "status": self.status.value,
            "told": self.told,
            "seconds": round(self.seconds, 2),
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True)
class PhoneReport:
    phone: Phone
    virtual: bool
    answers: tuple[Answer, ...]
    error: str | None = None  # why the phone could not be asked (any more)
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        """Nothing that training needs is missing."""
        return self.error is None and not any(answer.stops for answer in self.answers)

    def count(self) -> dict[str, int]:
        counts = Counter(answer.status for answer in self.answers)
        return {status.value: counts[status] for status in Status}


def answered(belief: Belief, found: Found, seconds: float, *, virtual: bool) -> Answer:
    """On a virtual phone, what it makes up settles nothing: it is told, and counts as unknown."""
    if virtual and belief.lab:
        told = f"a virtual phone cannot tell: {belief.lab} (it shows: {found.told})"
        return Answer(belief, Status.UNKNOWN, told, found.evidence, seconds)
    return Answer(belief, found.status, found.told, found.evidence, seconds)
