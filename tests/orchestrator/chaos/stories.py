"""Runs that were disturbed, made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orchestrator.chaos.catalogue import BY_NAME
from orchestrator.chaos.outcome import BlowStory, Hit, RunStory
from orchestrator.chaos.plan import RunPlan
from orchestrator.chaos.run_log import Said, Step
from orchestrator.records.causes import Cause
from phone_agent.contract import safetensors

FOUR = ("p1-01", "p1-02", "p2-01", "p2-02")
STEPS = 6


def steps(*numbers: int, attempt: int = 0, loss: float = 0.0) -> list[Step]:
    return [Step(attempt, number, 2.0 / number + loss, 100.0 + number, 100.0 + number) for number in numbers]


def story(
    checkpoint: Path | None,
    told: list[Step] | None = None,
    phones: tuple[tuple[str, ...], ...] = (FOUR,),
    blows: tuple[BlowStory, ...] = (),
    state: str = "done",
) -> RunStory:
    heard = tuple(steps(*range(1, STEPS + 1)) if told is None else told)
    return RunStory(RunPlan(1, 4, ()), "run", state, "", blows, phones, heard, checkpoint)


def restart(diagnosis: str, cause: Cause | None, *phones: str) -> Said:
    """That the next attempt is started, and why."""
    message = f"{diagnosis}; starting again from step 3 on 4 phones"
    return Said(message, 0.0, restarting=True, cause=cause, phones=phones, diagnosis=diagnosis)


KILLED = restart("p2-01 (sw2:1): its rank was killed (signal 9 (Killed))", Cause.RANK_KILLED, "p2-01")
SILENT = restart("p2-01 (sw2:1): does not answer: cable or power", Cause.PHONE_UNREACHABLE, "p2-01")
FULL = restart("p2-01 (sw2:1): its disk is full (0 MB free)", Cause.DISK_FULL, "p2-01")
GOES_ON = Said("going on with step 4 on 4 phones: 2.1 s lost", 0.0)


def blow(*hits: tuple[str, str], incidents: tuple[Said, ...] = (), seconds: float | None = 1.0) -> BlowStory:
    struck = tuple(Hit(BY_NAME[fault], phone) for fault, phone in hits)
    name = hits[0][0] if len(hits) == 1 else "two at once"
    return BlowStory(name, struck, 100.0, 3, incidents, seconds, restarted=bool(incidents))


def saved(path: Path, off: float = 0.0) -> Path:
    weights = np.linspace(1.0, 2.0, 1000, dtype=np.float32) * np.float32(1.0 + off)
    safetensors.write(path, {"fc.weight": weights, "optimizer.momenta": np.ones(1000, np.float32)})
    return path
