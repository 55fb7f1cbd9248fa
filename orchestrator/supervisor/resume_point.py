"""From which state the next attempt resumes: memory of the phones, a checkpoint, or the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.records import checkpoints
from orchestrator.records.incidents import IncidentKind

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet
    from phone_agent.contract.schema import RunSpec


def find_resume_checkpoint(
    fleet: Fleet, spec: RunSpec, directory: Path, memory_step: int, report: Callable[[IncidentKind, str], None]
) -> Path | None:
    """The checkpoint to resume from. None: the phones hold a step in memory, or the run starts from the beginning.

    A checkpoint is used only where no phone holds anything in memory, as after a power cut to all of them.
    """
    if memory_step:
        return None
    found = checkpoints.find_newest(fleet, spec, directory)
    for damaged in found.damaged if found else ():
        report(IncidentKind.CHECKPOINT_SKIPPED, f"skipped the damaged checkpoint {damaged}")
    if found is None:
        message = "no phone has the training state and there is no checkpoint: restarting from the beginning"
        report(IncidentKind.STATE_LOST, message)
        return None
    message = f"no phone has the training state: resuming from {found.path.name}, step {found.step}"
    report(IncidentKind.STATE_LOST, message)
    return found.path
