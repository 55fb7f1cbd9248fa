"""Evaluating a disturbed run: invariants, and the attribution of faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.chaos.evaluate import (
    TOLERANCE,
    Attribution,
    CheckResult,
    Invariant,
    assign_incidents,
    evaluate,
    rate_attribution,
    relative_difference,
)
from orchestrator.chaos.outcome import RunOutcome
from orchestrator.chaos.run_log import Incident
from orchestrator.records.causes import Cause
from phone_agent.contract import safetensors
from tests.orchestrator.chaos.samples import (
    DISK_FULL,
    FOUR,
    KILLED,
    RESUMED,
    STEPS,
    UNREACHABLE,
    injection_outcome,
    restart,
    run_outcome,
    saved,
    steps,
)


@pytest.fixture
def reference(tmp_path: Path) -> RunOutcome:
    return run_outcome(saved(tmp_path / "reference.safetensors"))


def violated(result: CheckResult) -> set[Invariant]:
    return {violation.invariant for violation in result.violations}


def test_an_equal_run_keeps_every_invariant(reference: RunOutcome, tmp_path: Path) -> None:
    result = evaluate(run_outcome(saved(tmp_path / "again.safetensors")), reference)
    assert result == CheckResult((), bitwise=True, difference=0.0)


def test_results_must_be_bitwise_equal_if_the_phones_stayed_the_same(reference: RunOutcome, tmp_path: Path) -> None:
    result = evaluate(run_outcome(saved(tmp_path / "off.safetensors", 1e-7), phones=(FOUR, FOUR)), reference)
    assert result.bitwise
    assert violated(result) == {Invariant.CORRECT_RESULT}
    assert result.difference is not None
    assert 0 < result.difference < 1e-6


def test_rounding_is_allowed_if_a_phone_was_lost(reference: RunOutcome, tmp_path: Path) -> None:
    lost = (FOUR, FOUR[1:])
    near = evaluate(run_outcome(saved(tmp_path / "near.safetensors", TOLERANCE / 10), phones=lost), reference)
    far = evaluate(run_outcome(saved(tmp_path / "far.safetensors", TOLERANCE * 10), phones=lost), reference)
    assert (near.bitwise, violated(near)) == (False, set())
    assert violated(far) == {Invariant.CORRECT_RESULT}


def test_a_repeated_step_was_lost(reference: RunOutcome, tmp_path: Path) -> None:
    reported = [*steps(1, 2, 3, 4), *steps(4, 5, 6, attempt=1)]
    result = evaluate(run_outcome(saved(tmp_path / "a.safetensors"), reported), reference)
    assert violated(result) == {Invariant.NO_LOST_STEP}
    assert result.violations[0].message == "step 4 was repeated after step 4 (attempt 1)"


def test_steps_since_the_last_checkpoint_may_be_repeated_after_a_power_cut(
    reference: RunOutcome, tmp_path: Path
) -> None:
    reported = [*steps(1, 2, 3, 4), *steps(3, 4, 5, 6, attempt=1)]
    cut = injection_outcome(("holder excluded", "p2-01"))
    for durable, expected in ((2, set()), (3, {Invariant.NO_LOST_STEP})):
        injections = (replace(cut, durable_step=durable),)
        outcome = run_outcome(saved(tmp_path / "a.safetensors"), reported, injections=injections)
        assert violated(evaluate(outcome, reference)) == expected


def test_a_step_that_a_dead_head_phone_did_not_report_is_not_lost(reference: RunOutcome, tmp_path: Path) -> None:
    reported = [*steps(1, 2, 3), *steps(5, 6, attempt=1)]
    assert violated(evaluate(run_outcome(saved(tmp_path / "a.safetensors"), reported), reference)) == set()


def test_different_samples_show_in_the_loss(reference: RunOutcome, tmp_path: Path) -> None:
    reported = [*steps(1, 2, 3), *steps(4, 5, 6, loss=0.01)]
    result = evaluate(run_outcome(saved(tmp_path / "a.safetensors"), reported), reference)
    assert violated(result) == {Invariant.CORRECT_RESULT}
    assert result.violations[0].message.startswith("step 4: loss is ")


@pytest.mark.parametrize("state", ["hung", "failed", "interrupted"])
def test_a_run_that_is_not_done_is_a_violation(reference: RunOutcome, state: str) -> None:
    result = evaluate(run_outcome(None, steps(1, 2), state=state), reference)
    assert violated(result) == {Invariant.RUN_ENDS}
    assert result.violations[0].message == f"the run is {state}"


def test_a_run_without_its_last_checkpoint_is_not_done(reference: RunOutcome) -> None:
    assert violated(evaluate(run_outcome(None), reference)) == {Invariant.RUN_ENDS}


def test_different_tensors_are_infinitely_different(tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    safetensors.write(other, {"fc.weight": np.ones(3, np.float32)})
    assert relative_difference(other, saved(tmp_path / "one.safetensors")) == float("inf")


def test_nan_is_infinitely_different(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    safetensors.write(bad, {"w": np.full(3, np.nan, np.float32)})
    good = tmp_path / "good.safetensors"
    safetensors.write(good, {"w": np.ones(3, np.float32)})
    assert relative_difference(bad, good) == float("inf")


@pytest.mark.parametrize(
    ("faults", "incidents", "expected"),
    [
        ([("rank killed", "p2-01")], (KILLED, RESUMED), Attribution.CORRECT),
        ([("rank killed", "p1-01")], (KILLED, RESUMED), Attribution.WRONG),
        ([("power off", "p2-01")], (KILLED, RESUMED), Attribution.WRONG),
        ([("power off", "p2-01")], (UNREACHABLE, RESUMED), Attribution.CORRECT),
        ([("cable out", "p2-01")], (KILLED, UNREACHABLE), Attribution.WRONG),
        ([("rank killed", "p2-01")], (), Attribution.MISSING),
        ([("throttling", "p2-01")], (), Attribution.NOT_NEEDED),
        ([("throttling", "p2-01")], (KILLED,), Attribution.FALSE_ALARM),
        ([("host dies", "")], (KILLED,), Attribution.FALSE_ALARM),
        ([("disk full", "p1-01")], (), Attribution.NOT_NEEDED),
        ([("disk full", "p2-01")], (DISK_FULL,), Attribution.CORRECT),
        ([("disk full", "p2-01")], (KILLED,), Attribution.WRONG),
        ([("rank killed", "p2-01"), ("cable out", "p1-02")], (KILLED,), Attribution.CORRECT),
        ([("host dies", ""), ("power off", "p2-01")], (UNREACHABLE,), Attribution.CORRECT),
        ([("host dies", ""), ("power off", "p2-01")], (), Attribution.MISSING),
        ([("clock jump", "p2-01")], (restart("", None),), Attribution.NOT_NEEDED),  # a phone rejoined
    ],
)
def test_attribution(faults: list[tuple[str, str]], incidents: tuple[Incident, ...], expected: Attribution) -> None:
    assert rate_attribution(injection_outcome(*faults, incidents=incidents)) is expected


def test_a_late_incident_is_assigned_to_the_fault_that_it_explains() -> None:
    limit = replace(injection_outcome(("memory limit", "p2-01")), at=100.0)
    slow = replace(injection_outcome(("throttling", "p1-01")), at=110.0)
    memory = restart("p2-01 (sw2:1): MemoryError: Unable to allocate 1.64 MiB", Cause.OUT_OF_MEMORY, "p2-01")
    late, other = assign_incidents(
        [limit, slow], [replace(memory, received_at=120.0), replace(RESUMED, received_at=121.0)]
    )
    assert (rate_attribution(late), rate_attribution(other)) == (Attribution.CORRECT, Attribution.NOT_NEEDED)
    early, blamed = assign_incidents([limit, slow], [replace(KILLED, received_at=120.0, phones=("p1-02",))])
    assert (rate_attribution(early), rate_attribution(blamed)) == (Attribution.NOT_NEEDED, Attribution.FALSE_ALARM)


def test_the_sample_run_has_all_steps() -> None:
    assert [step.number for step in run_outcome(None).steps] == [*range(1, STEPS + 1)]
