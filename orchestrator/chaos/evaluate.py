"""Whether a disturbed run kept what was promised, by an undisturbed one of the same seed and order of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from orchestrator.chaos.catalogue import Effect
from orchestrator.chaos.outcome import BlowStory, RunStory
from orchestrator.chaos.run_log import Said
from phone_agent.contract import safetensors

# Relative, where other phones took part: sums of float32 in another order, over all steps. A step left out, or done
# with other samples, changes the momenta by more than a tenth.
TOLERANCE = 1e-3  # of each tensor, by its norm
LOSS_TOLERANCE = 1e-4


class Attribution(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"  # another phone, or another kind
    UNNAMED = "unnamed"
    FALSE_ALARM = "false alarm"  # somebody was blamed, though the run could have gone on
    NONE = "nothing to name"


class Promise(StrEnum):
    ENDS = "no run hangs or fails"
    RESULT = "no result is wrong"
    STEPS = "no completed step is lost"


@dataclass(frozen=True)
class Breach:
    promise: Promise
    message: str


@dataclass(frozen=True)
class Verdict:
    breaches: tuple[Breach, ...]
    to_the_bit: bool  # that is what was asked
    difference: float | None  # of the weights; None: there are none to compare


def judge(story: RunStory, reference: RunStory) -> Verdict:
    breaches = [*_end(story), *_lost_steps(story), *_losses(story, reference)]
    if story.checkpoint is None or reference.checkpoint is None:
        return Verdict(tuple(breaches), story.same_phones, None)
    apart = difference(story.checkpoint, reference.checkpoint)
    if apart > (0.0 if story.same_phones else TOLERANCE):
        asked = "to the bit" if story.same_phones else f"within {TOLERANCE:g}"
        breaches.append(Breach(Promise.RESULT, f"weights differ by {apart:.3g}, and should be equal {asked}"))
    return Verdict(tuple(breaches), story.same_phones, apart)


def cause(blow: BlowStory) -> Attribution:
    """How the first cause was told."""
    told = first_cause(blow)
    effects = {hit.fault.effect for hit in blow.hits}
    if told is None:
        return Attribution.UNNAMED if Effect.STOPS in effects else Attribution.NONE
    if _fits(told, blow):
        return Attribution.RIGHT
    return Attribution.FALSE_ALARM if effects == {Effect.GOES_ON} else Attribution.WRONG


def first_cause(blow: BlowStory) -> Said | None:
    """What the first restart after it was blamed on."""
    return next((said for said in blow.incidents if said.restarting and said.cause is not None), None)


def attributed(blows: Sequence[BlowStory], incidents: Sequence[Said]) -> tuple[BlowStory, ...]:
    """Each with what was told of it: by the next blow, or later if it fits none but an earlier one.

    A limit on memory, for one, is felt when memory is next asked for.
    """
    told: list[list[Said]] = [[] for _ in blows]
    for said in incidents:
        before = [index for index, blow in enumerate(blows) if blow.at < said.heard]
        if before:
            fitting = [index for index in before if _fits(said, blows[index])]
            told[fitting[-1] if fitting else before[-1]].append(said)
    return tuple(replace(blow, incidents=tuple(each)) for blow, each in zip(blows, told, strict=True))


def _fits(said: Said, blow: BlowStory) -> bool:
    return any(hit.phone in said.phones and said.cause in hit.fault.causes for hit in blow.hits)


def _end(story: RunStory) -> list[Breach]:
    if story.state == "done" and story.checkpoint is not None:
        return []
    why = story.error or ("its last checkpoint did not arrive" if story.state == "done" else "")
    return [Breach(Promise.ENDS, f"it is {story.state}{': ' * bool(why)}{why}")]


def _lost_steps(story: RunStory) -> list[Breach]:
    """A step that was told and is done again had been lost."""
    told = 0
    for step in story.steps:
        if step.number <= told:
            return [
                Breach(Promise.STEPS, f"step {step.number} was done again after step {told} (attempt {step.attempt})")
            ]
        told = step.number
    return []


def _losses(story: RunStory, reference: RunStory) -> list[Breach]:
    """Each step's: the same samples, seen by the same weights."""
    expected = {step.number: step.loss for step in reference.steps}
    for step in story.steps:
        loss = expected.get(step.number)
        if loss is None or step.loss is None or not math.isclose(step.loss, loss, rel_tol=LOSS_TOLERANCE):
            return [Breach(Promise.RESULT, f"the loss of step {step.number} is {step.loss}, and should be {loss}")]
    return []


def difference(one: Path, other: Path) -> float:
    """Of what two checkpoints hold, relative to its size; 0 only where they are equal to the bit."""
    mine, its = (safetensors.read(path).tensors for path in (one, other))
    if mine.keys() != its.keys() or any(mine[name].shape != its[name].shape for name in its):
        return math.inf
    return max(_apart(np.asarray(mine[name]), np.asarray(its[name])) for name in its)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    if one.tobytes() == other.tobytes():
        return 0.0
    wide, reference = one.astype(np.float64), other.astype(np.float64)
    apart = float(np.linalg.norm(wide - reference) / (np.linalg.norm(reference) or 1.0))
    return max(apart, float(np.finfo(np.float64).tiny)) if math.isfinite(apart) else math.inf
