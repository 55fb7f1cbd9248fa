"""Which state the next attempt resumes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.records.checkpoints import FoundCheckpoint
from orchestrator.supervisor.resume_point import ResumePoint, choose_resume_point, elect_step
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.schema import ResumeSpec

A, B = CommittedStep(49, attempt=0), CommittedStep(50, attempt=0)
RECOMPUTED = CommittedStep(50, attempt=1)
CUT_OFF = CommittedStep(12, attempt=0)


@pytest.mark.parametrize(
    ("held", "elected"),
    [
        ([[], []], None),
        ([[A, B], [A, B]], B),
        ([[A, B], [A]], A),  # the second was killed while writing B
        ([[A, B], []], B),  # a new phone
        ([[], [A, B], [B]], B),
        ([[CUT_OFF], [A, B]], B),  # back after a long time
        ([[A, B], [RECOMPUTED]], RECOMPUTED),  # the same step, from another state
        ([[CommittedStep(60, 0)], [RECOMPUTED, A]], CommittedStep(60, 0)),  # it was away when the run went back
    ],
)
def test_the_newest_step_held_by_all_who_took_part_until_the_end(
    held: list[list[CommittedStep]], elected: CommittedStep | None
) -> None:
    assert elect_step(held) == elected


@pytest.mark.parametrize(
    ("in_memory", "checkpoint", "spec"),
    [
        (None, None, ResumeSpec()),
        (B, None, ResumeSpec(50, attempt=0)),
        (RECOMPUTED, 40, ResumeSpec(50, attempt=1)),
        (B, 50, ResumeSpec(50)),  # memory is exact, and need not be sent
        (CUT_OFF, 40, ResumeSpec(40, file="resume.safetensors")),
        (None, 40, ResumeSpec(40, file="resume.safetensors")),
    ],
)
def test_the_newest_of_memory_and_checkpoint(
    in_memory: CommittedStep | None, checkpoint: int | None, spec: ResumeSpec
) -> None:
    found = FoundCheckpoint(Path("checkpoint-00000040.safetensors"), checkpoint) if checkpoint else None
    resume = choose_resume_point(in_memory, found)
    assert (resume.spec, resume.step) == (spec, spec.step)


def test_what_is_resumed_from_is_named() -> None:
    found = FoundCheckpoint(Path("/runs/run/checkpoint-00000040.safetensors"), 40)
    assert str(ResumePoint(B)) == "step 50"
    assert str(ResumePoint(checkpoint=found)) == "checkpoint-00000040.safetensors (step 40)"
    assert str(ResumePoint()) == "the start"
