"""Outcomes of disturbed runs, made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orchestrator.chaos.catalog import BY_NAME
from orchestrator.chaos.outcome import InjectedFault, InjectionOutcome, RunOutcome
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.run_log import Incident, Step
from orchestrator.records.causes import Cause
from orchestrator.records.incidents import IncidentKind
from phone_agent.contract import safetensors

FOUR = ("p1-01", "p1-02", "p2-01", "p2-02")
STEPS = 6


def steps(*numbers: int, attempt: int = 0, loss: float = 0.0) -> list[Step]:
    return [Step(attempt, number, 2.0 / number + loss, 100.0 + number, 100.0 + number) for number in numbers]


def run_outcome(
    checkpoint: Path | None,
    reported: list[Step] | None = None,
    phones: tuple[tuple[str, ...], ...] = (FOUR,),
    injections: tuple[InjectionOutcome, ...] = (),
    state: str = "done",
) -> RunOutcome:
    completed = tuple(steps(*range(1, STEPS + 1)) if reported is None else reported)
    return RunOutcome(RunPlan(1, 4, ()), "run", state, "", injections, phones, completed, checkpoint)


def restart(diagnosis: str, cause: Cause | None, *phones: str) -> Incident:
    message = f"{diagnosis}; restarting from step 3 on 4 phones"
    return Incident(message, 0.0, kind=IncidentKind.RESTARTING, cause=cause, phones=phones, diagnosis=diagnosis)


KILLED = restart("p2-01 (sw2:1): rank was killed (signal 9 (Killed))", Cause.RANK_KILLED, "p2-01")
UNREACHABLE = restart("p2-01 (sw2:1): does not answer: cable or power", Cause.PHONE_UNREACHABLE, "p2-01")
DISK_FULL = restart("p2-01 (sw2:1): disk is full (0 MB free)", Cause.DISK_FULL, "p2-01")
RESUMED = Incident("resumed at step 4 on 4 phones: 2.1 s lost", 0.0)


def injection_outcome(
    *faults: tuple[str, str], incidents: tuple[Incident, ...] = (), seconds: float | None = 1.0
) -> InjectionOutcome:
    """`faults`: each as name and phone."""
    injected = tuple(InjectedFault(BY_NAME[name], phone) for name, phone in faults)
    kind = faults[0][0] if len(faults) == 1 else "two at once"
    return InjectionOutcome(kind, injected, 100.0, 3, incidents, seconds, restarted=bool(incidents))


def saved(path: Path, error: float = 0.0) -> Path:
    """A checkpoint whose weights are off by this relative error."""
    weights = np.linspace(1.0, 2.0, 1000, dtype=np.float32) * np.float32(1.0 + error)
    safetensors.write(path, {"fc.weight": weights, "optimizer.momenta": np.ones(1000, np.float32)})
    return path
