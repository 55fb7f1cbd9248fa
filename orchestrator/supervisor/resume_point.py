"""From which state the next attempt resumes: memory of its phones, a checkpoint, or the initial weights. Pure.

The newest state wins, on whichever attempt it was computed: a run never goes back while a newer state is available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records.checkpoints import FoundCheckpoint
from orchestrator.supervisor.probe import Probe
from phone_agent.contract import layout
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.schema import ResumeSpec


@dataclass(frozen=True)
class ResumePoint:
    """By default, the initial weights."""

    in_memory: CommittedStep | None = None
    checkpoint: FoundCheckpoint | None = None

    @property
    def step(self) -> int:
        """The last completed step."""
        if self.checkpoint:
            return self.checkpoint.step
        return self.in_memory.step if self.in_memory else 0

    @property
    def file(self) -> Path | None:
        return self.checkpoint.path if self.checkpoint else None

    @property
    def spec(self) -> ResumeSpec:
        if self.checkpoint:
            return ResumeSpec(self.checkpoint.step, file=layout.RESUME_FILE)
        return ResumeSpec(*self.in_memory) if self.in_memory else ResumeSpec()

    def __str__(self) -> str:
        if self.checkpoint:
            return f"{self.checkpoint.path.name} (step {self.step})"
        return f"step {self.step}" if self.step else "the start"


def choose_resume_point(in_memory: CommittedStep | None, checkpoint: FoundCheckpoint | None) -> ResumePoint:
    """Of two equal steps the one in memory: it is exact, and does not have to be sent."""
    if checkpoint is not None and (in_memory is None or in_memory.step < checkpoint.step):
        return ResumePoint(checkpoint=checkpoint)
    return ResumePoint(in_memory)


def elect_step(held: Sequence[Sequence[CommittedStep]]) -> CommittedStep | None:
    """The step in memory that a new attempt resumes from. `held`: what each of its phones holds. None: nothing.

    Phones that hold the newest step, or the one before it in the same attempt, took part until the end. If all of
    them hold the newest, it is elected. Otherwise the step before is, which they all hold: each then resumes from its
    own copy, with the state that differs between ranks (running statistics, residuals of lossy wire formats), and no
    step that any rank reported is lost. All other phones dropped out earlier and receive the elected state.
    """
    newest = newest_of(held)
    if newest is None:
        return None
    candidates = {committed for steps in held for committed in steps if _is_recent(committed, newest)}
    present = [steps for steps in held if candidates.intersection(steps)]
    common = [committed for committed in candidates if all(committed in steps for steps in present)]
    return max(common, default=newest)


def _is_recent(committed: CommittedStep, newest: CommittedStep) -> bool:
    return committed.attempt == newest.attempt and committed.step >= newest.step - 1


def newest_of(held: Sequence[Sequence[CommittedStep]]) -> CommittedStep | None:
    return max((committed for steps in held for committed in steps), default=None)


def holders_of_newest(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """The phones that hold the newest step that any of them holds; none if there is no step in memory."""
    newest = newest_of([probe.in_memory for probe in probes])
    return tuple(probe for probe in probes if newest in probe.in_memory)
