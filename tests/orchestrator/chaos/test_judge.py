"""Judging a disturbed run: what is a breach, and how a first cause counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.chaos.evaluate import TOLERANCE, Attribution, Promise, Verdict, attributed, cause, difference, judge
from orchestrator.chaos.outcome import RunStory
from orchestrator.chaos.run_log import Said
from orchestrator.records.causes import Cause
from phone_agent.contract import safetensors
from tests.orchestrator.chaos.stories import (
    FOUR,
    FULL,
    GOES_ON,
    KILLED,
    SILENT,
    STEPS,
    blow,
    restart,
    saved,
    steps,
    story,
)


@pytest.fixture
def reference(tmp_path: Path) -> RunStory:
    return story(saved(tmp_path / "reference.safetensors"))


def broken(verdict: Verdict) -> set[Promise]:
    return {breach.promise for breach in verdict.breaches}


def test_the_same_again_keeps_every_promise(reference: RunStory, tmp_path: Path) -> None:
    verdict = judge(story(saved(tmp_path / "again.safetensors")), reference)
    assert verdict == Verdict((), to_the_bit=True, difference=0.0)


def test_one_bit_is_too_much_where_the_phones_stayed_the_same(reference: RunStory, tmp_path: Path) -> None:
    verdict = judge(story(saved(tmp_path / "off.safetensors", 1e-7), phones=(FOUR, FOUR)), reference)
    assert verdict.to_the_bit
    assert broken(verdict) == {Promise.RESULT}
    assert verdict.difference is not None
    assert 0 < verdict.difference < 1e-6


def test_rounding_is_allowed_where_a_phone_was_lost(reference: RunStory, tmp_path: Path) -> None:
    lost = (FOUR, FOUR[1:])
    near = judge(story(saved(tmp_path / "near.safetensors", TOLERANCE / 10), phones=lost), reference)
    far = judge(story(saved(tmp_path / "far.safetensors", TOLERANCE * 10), phones=lost), reference)
    assert (near.to_the_bit, broken(near)) == (False, set())
    assert broken(far) == {Promise.RESULT}


def test_a_step_done_again_was_lost(reference: RunStory, tmp_path: Path) -> None:
    told = [*steps(1, 2, 3, 4), *steps(4, 5, 6, attempt=1)]
    verdict = judge(story(saved(tmp_path / "a.safetensors"), told), reference)
    assert broken(verdict) == {Promise.STEPS}
    assert verdict.breaches[0].message == "step 4 was done again after step 4 (attempt 1)"


def test_a_step_that_only_a_dead_head_phone_told_is_not_lost(reference: RunStory, tmp_path: Path) -> None:
    told = [*steps(1, 2, 3), *steps(5, 6, attempt=1)]
    assert broken(judge(story(saved(tmp_path / "a.safetensors"), told), reference)) == set()


def test_other_samples_show_in_the_loss(reference: RunStory, tmp_path: Path) -> None:
    told = [*steps(1, 2, 3), *steps(4, 5, 6, loss=0.01)]
    verdict = judge(story(saved(tmp_path / "a.safetensors"), told), reference)
    assert broken(verdict) == {Promise.RESULT}
    assert verdict.breaches[0].message.startswith("the loss of step 4 is ")


@pytest.mark.parametrize("state", ["hung", "failed", "interrupted"])
def test_a_run_that_is_not_done_is_a_breach(reference: RunStory, state: str) -> None:
    verdict = judge(story(None, steps(1, 2), state=state), reference)
    assert broken(verdict) == {Promise.ENDS}
    assert verdict.breaches[0].message == f"it is {state}"


def test_a_run_without_its_last_checkpoint_is_not_done(reference: RunStory) -> None:
    assert broken(judge(story(None), reference)) == {Promise.ENDS}


def test_other_tensors_are_infinitely_far(tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    safetensors.write(other, {"fc.weight": np.ones(3, np.float32)})
    assert difference(other, saved(tmp_path / "one.safetensors")) == float("inf")


def test_numbers_that_are_none_are_infinitely_far(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    safetensors.write(bad, {"w": np.full(3, np.nan, np.float32)})
    good = tmp_path / "good.safetensors"
    safetensors.write(good, {"w": np.ones(3, np.float32)})
    assert difference(bad, good) == float("inf")


@pytest.mark.parametrize(
    ("hits", "incidents", "expected"),
    [
        ([("rank killed", "p2-01")], (KILLED, GOES_ON), Attribution.RIGHT),
        ([("rank killed", "p1-01")], (KILLED, GOES_ON), Attribution.WRONG),
        ([("power off", "p2-01")], (KILLED, GOES_ON), Attribution.WRONG),
        ([("power off", "p2-01")], (SILENT, GOES_ON), Attribution.RIGHT),
        ([("cable out", "p2-01")], (KILLED, SILENT), Attribution.WRONG),
        ([("rank killed", "p2-01")], (), Attribution.UNNAMED),
        ([("throttling", "p2-01")], (), Attribution.NONE),
        ([("throttling", "p2-01")], (KILLED,), Attribution.FALSE_ALARM),
        ([("host dies", "")], (KILLED,), Attribution.FALSE_ALARM),
        ([("disk full", "p1-01")], (), Attribution.NONE),
        ([("disk full", "p2-01")], (FULL,), Attribution.RIGHT),
        ([("disk full", "p2-01")], (KILLED,), Attribution.WRONG),
        ([("rank killed", "p2-01"), ("cable out", "p1-02")], (KILLED,), Attribution.RIGHT),
        ([("host dies", ""), ("power off", "p2-01")], (SILENT,), Attribution.RIGHT),
        ([("host dies", ""), ("power off", "p2-01")], (), Attribution.UNNAMED),
        ([("clock jump", "p2-01")], (restart("", None),), Attribution.NONE),  # somebody came back
    ],
)
def test_a_first_cause(hits: list[tuple[str, str]], incidents: tuple[Said, ...], expected: Attribution) -> None:
    assert cause(blow(*hits, incidents=incidents)) is expected


def test_what_is_told_late_belongs_to_whom_it_fits() -> None:
    limit = replace(blow(("memory limit", "p2-01")), at=100.0)
    slow = replace(blow(("throttling", "p1-01")), at=110.0)
    memory = restart("p2-01 (sw2:1): MemoryError: Unable to allocate 1.64 MiB", Cause.OUT_OF_MEMORY, "p2-01")
    late, other = attributed([limit, slow], [replace(memory, heard=120.0), replace(GOES_ON, heard=121.0)])
    assert (cause(late), cause(other)) == (Attribution.RIGHT, Attribution.NONE)
    early, blamed = attributed([limit, slow], [replace(KILLED, heard=120.0, phones=("p1-02",))])
    assert (cause(early), cause(blamed)) == (Attribution.NONE, Attribution.FALSE_ALARM)


def test_the_samples_are_whole() -> None:
    assert [step.number for step in story(None).steps] == [*range(1, STEPS + 1)]
