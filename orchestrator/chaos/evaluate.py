"""Whether a run under faults kept the invariants, compared with an undisturbed run of the same seed and samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from orchestrator.chaos.catalog import Effect
from orchestrator.chaos.outcome import InjectionOutcome, RunOutcome
from orchestrator.chaos.run_log import Incident, Step
from phone_agent.contract import safetensors

# Relative tolerances for runs whose phones changed, because float32 sums in another order round differently. A skipped
# step, or one with other samples, changes the momenta by more than a tenth.
TOLERANCE = 1e-3  # of the norm of each tensor
LOSS_TOLERANCE = 1e-4


class Attribution(StrEnum):
    """How the first diagnosis after an injection compares with the injected faults."""

    CORRECT = "correct"
    WRONG = "wrong"  # another phone, or another cause
    MISSING = "missing"
    FALSE_ALARM = "false alarm"  # a phone was blamed, although the run could have continued
    NOT_NEEDED = "not needed"


class Invariant(StrEnum):
    RUN_ENDS = "no run hangs or fails"
    CORRECT_RESULT = "no result is wrong"
    NO_LOST_STEP = "no completed step is lost"


@dataclass(frozen=True)
class Violation:
    invariant: Invariant
    message: str


@dataclass(frozen=True)
class CheckResult:
    violations: tuple[Violation, ...]
    bitwise: bool  # whether results had to be bitwise equal
    difference: float | None  # of the weights; None: there are none to compare


def evaluate(outcome: RunOutcome, reference: RunOutcome) -> CheckResult:
    violations = [*_check_end(outcome), *_check_steps(outcome), *_check_losses(outcome, reference)]
    if outcome.checkpoint is None or reference.checkpoint is None:
        return CheckResult(tuple(violations), outcome.same_phones, None)
    difference = relative_difference(outcome.checkpoint, reference.checkpoint)
    if difference > (0.0 if outcome.same_phones else TOLERANCE):
        required = "bitwise equal" if outcome.same_phones else f"equal within {TOLERANCE:g}"
        message = f"weights differ by {difference:.3g}; they should be {required}"
        violations.append(Violation(Invariant.CORRECT_RESULT, message))
    return CheckResult(tuple(violations), outcome.same_phones, difference)


def rate_attribution(outcome: InjectionOutcome) -> Attribution:
    diagnosed = first_diagnosis(outcome)
    effects = {injected.fault.effect for injected in outcome.faults}
    if diagnosed is None:
        return Attribution.MISSING if Effect.RESTARTS in effects else Attribution.NOT_NEEDED
    if _explains(diagnosed, outcome):
        return Attribution.CORRECT
    return Attribution.FALSE_ALARM if effects == {Effect.CONTINUES} else Attribution.WRONG


def first_diagnosis(outcome: InjectionOutcome) -> Incident | None:
    """The incident that explains the first restart after the injection."""
    return next((each for each in outcome.incidents if each.restarting and each.cause is not None), None)


def assign_incidents(
    outcomes: Sequence[InjectionOutcome], incidents: Sequence[Incident]
) -> tuple[InjectionOutcome, ...]:
    """Assign each incident to the last injection before it that it explains, or else to the last one before it.

    Some faults show late: a memory limit shows when memory is next allocated.
    """
    assigned: list[list[Incident]] = [[] for _ in outcomes]
    for incident in incidents:
        before = [index for index, outcome in enumerate(outcomes) if outcome.at < incident.received_at]
        if before:
            explained = [index for index in before if _explains(incident, outcomes[index])]
            assigned[explained[-1] if explained else before[-1]].append(incident)
    return tuple(replace(outcome, incidents=tuple(each)) for outcome, each in zip(outcomes, assigned, strict=True))


def _explains(incident: Incident, outcome: InjectionOutcome) -> bool:
    return any(each.phone in incident.phones and incident.cause in each.fault.causes for each in outcome.faults)


def _check_end(outcome: RunOutcome) -> list[Violation]:
    if outcome.state == "done" and outcome.checkpoint is not None:
        return []
    reason = outcome.error or ("the last checkpoint was not fetched" if outcome.state == "done" else "")
    return [Violation(Invariant.RUN_ENDS, f"the run is {outcome.state}{': ' * bool(reason)}{reason}")]


def _check_steps(outcome: RunOutcome) -> list[Violation]:
    """A reported step that is repeated had been lost."""
    last = 0
    for step in outcome.steps:
        if step.number <= last and not _may_be_repeated(step, outcome):
            message = f"step {step.number} was repeated after step {last} (attempt {step.attempt})"
            return [Violation(Invariant.NO_LOST_STEP, message)]
        last = step.number
    return []


def _may_be_repeated(step: Step, outcome: RunOutcome) -> bool:
    """After a power cut, the steps since the last checkpoint are computed again."""
    return any(
        injection.durable_step is not None and injection.at < step.received_at and step.number > injection.durable_step
        for injection in outcome.injections
    )


def _check_losses(outcome: RunOutcome, reference: RunOutcome) -> list[Violation]:
    """The loss of every step: the same weights must have seen the same samples."""
    expected = {step.number: step.loss for step in reference.steps}
    for step in outcome.steps:
        loss = expected.get(step.number)
        if loss is None or step.loss is None or not math.isclose(step.loss, loss, rel_tol=LOSS_TOLERANCE):
            message = f"step {step.number}: loss is {step.loss}, expected {loss}"
            return [Violation(Invariant.CORRECT_RESULT, message)]
    return []


def relative_difference(one: Path, other: Path) -> float:
    """The largest relative difference between tensors of two checkpoints; 0 only if they are bitwise equal."""
    ours, theirs = (safetensors.read(path).tensors for path in (one, other))
    if ours.keys() != theirs.keys() or any(ours[name].shape != theirs[name].shape for name in theirs):
        return math.inf
    return max(_tensor_difference(np.asarray(ours[name]), np.asarray(theirs[name])) for name in theirs)


def _tensor_difference(one: np.ndarray, other: np.ndarray) -> float:
    if one.tobytes() == other.tobytes():
        return 0.0
    wide, reference = one.astype(np.float64), other.astype(np.float64)
    difference = float(np.linalg.norm(wide - reference) / (np.linalg.norm(reference) or 1.0))
    return max(difference, float(np.finfo(np.float64).tiny)) if math.isfinite(difference) else math.inf
