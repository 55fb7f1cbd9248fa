"""A run on four phones of two switches, and what its phones may answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.records.causes import Cause
from orchestrator.records.record import RunRecord
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.probe import Probe
from phone_agent.contract.startup import StartupPhase
from tests.orchestrator.launch.samples import phones, spec

SPEC = spec(4, switches=2)
FOUR = phones(4, 2)
KILLED = Diagnosis(Cause.RANK_KILLED, SPEC.ranks[2])


def record(**changes: Any) -> RunRecord:
    names = tuple(phone.name for phone in FOUR)
    fresh = RunRecord("run", "lenet", names[0], names, 20, 0.0, requested=names, min_phones=3, max_restarts=20)
    return replace(fresh, **changes)


def training() -> tuple[Probe, ...]:
    return tuple(Probe(phone, ranks=1, progressing=True, phase=StartupPhase.TRAINING) for phone in FOUR)


def ended() -> tuple[Probe, ...]:
    """Every phone answers, and its rank has ended."""
    return tuple(Probe(phone, phase=StartupPhase.TRAINING) for phone in FOUR)


def idle() -> tuple[Probe, ...]:
    """Every phone answers, none runs a rank."""
    return tuple(Probe(phone) for phone in FOUR)


def unreachable(*names: str, others: tuple[Probe, ...] | None = None) -> tuple[Probe, ...]:
    probes = idle() if others is None else others
    return tuple(Probe(probe.phone, "timed out") if probe.phone.name in names else probe for probe in probes)
