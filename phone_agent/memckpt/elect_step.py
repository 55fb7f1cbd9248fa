"""Choose the step that a new attempt resumes from. Pure: every rank computes the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.memckpt.header import CommittedStep


@dataclass(frozen=True)
class ElectedStep:
    committed: CommittedStep
    holders: tuple[int, ...]  # ranks that hold it


def elect_step(held: Sequence[Sequence[CommittedStep]]) -> ElectedStep | None:
    """`held`: the committed steps of each rank. None: no rank holds any.

    Ranks that hold the newest step or the one before took part until the end. If all of them hold the newest, it is
    elected. Otherwise the step before is, which they all hold: each then resumes from its own copy, with the state
    that differs between ranks (running statistics, residuals of lossy wire formats), and no step that any rank
    reported is lost. Other ranks dropped out earlier: what they hold belongs to an earlier attempt, because every
    attempt commits the step that it resumes from.
    """
    newest = max((committed for steps in held for committed in steps), default=None)
    if newest is None:
        return None
    present = [steps for steps in held if any(_is_recent(committed, newest) for committed in steps)]
    candidates = sorted({each for steps in present for each in steps if _is_recent(each, newest)}, reverse=True)
    common = [committed for committed in candidates if all(committed in steps for steps in present)]
    elected = (common or [newest])[0]
    return ElectedStep(elected, tuple(rank for rank, steps in enumerate(held) if elected in steps))


def _is_recent(committed: CommittedStep, newest: CommittedStep) -> bool:
    return committed.attempt == newest.attempt and committed.step >= newest.step - 1
