"""What was observed when the plan of a run was carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.chaos.catalog import Fault
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.run_log import Incident, Step


@dataclass(frozen=True)
class InjectedFault:
    fault: Fault
    phone: str  # empty: the host


@dataclass(frozen=True)
class InjectionOutcome:
    kind: str
    faults: tuple[InjectedFault, ...]
    at: float
    step: int  # the last that was reported before
    incidents: tuple[Incident, ...]  # recorded since
    seconds: float | None  # to the next completed step; None: there was none
    detected_s: float | None = None  # to the first sign of it, if the run was restarted
    phases: Mapping[str, float] = field(default_factory=dict)  # of the recovery, in seconds
    restarted: bool = False
    hung: bool = False
    durable_step: int | None = None  # later steps may be computed again: see scenarios.Staged


@dataclass(frozen=True)
class RunOutcome:
    plan: RunPlan
    run_id: str
    state: str
    error: str
    injections: tuple[InjectionOutcome, ...]
    phones: tuple[tuple[str, ...], ...]  # of each attempt
    steps: tuple[Step, ...]
    checkpoint: Path | None  # the last one, if it was fetched

    @property
    def same_phones(self) -> bool:
        """In all attempts: then results must be bitwise equal."""
        return len(set(self.phones)) == 1
