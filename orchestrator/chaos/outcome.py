"""What came of a plan, as it was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.chaos.catalogue import Fault
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.run_log import Said, Step


@dataclass(frozen=True)
class Hit:
    fault: Fault
    phone: str  # empty: the host


@dataclass(frozen=True)
class BlowStory:
    name: str
    hits: tuple[Hit, ...]
    at: float
    step: int  # the last one heard of before
    incidents: tuple[Said, ...]  # told since
    seconds: float | None  # to the next completed step; None: there was none
    noticed_s: float | None = None  # to the first sign of it, where the run was started again
    phases: Mapping[str, float] = field(default_factory=dict)  # where the seconds went, from the step before it
    restarted: bool = False
    hung: bool = False


@dataclass(frozen=True)
class RunStory:
    plan: RunPlan
    run_id: str
    state: str
    error: str
    blows: tuple[BlowStory, ...]
    phones: tuple[tuple[str, ...], ...]  # of each attempt
    steps: tuple[Step, ...]
    checkpoint: Path | None  # the last one, if it came here

    @property
    def same_phones(self) -> bool:
        """In all attempts: then results are the same to the bit."""
        return len(set(self.phones)) == 1
