"""The next attempt of a run, and runs that resume from a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.launch.request import LaunchRequest, make_request
from orchestrator.launch.resume import build_resumed_spec, check_resume
from orchestrator.plan.batch import apportion_at_least
from orchestrator.records.events import CommPlanEvent
from phone_agent.contract.schema import CommunicationSpec, ResumeSpec
from tests.orchestrator.supervisor.samples import FOUR, SPEC


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20))
def test_batches_that_add_up_stay_as_they_are(batches: list[int]) -> None:
    assert apportion_at_least(1, sum(batches), batches) == tuple(batches)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.integers(0, 1000), st.integers(1, 3))
def test_every_image_is_assigned_and_every_phone_gets_some(weights: list[float], more: int, least: int) -> None:
    total = least * len(weights) + more
    batches = apportion_at_least(least, total, weights)
    assert sum(batches) == total
    assert min(batches) >= least


def test_the_batch_of_a_lost_phone_goes_to_the_others() -> None:
    again = next_attempt(SPEC, (*FOUR[:2], FOUR[3]), 1)
    assert [(rank.rank, rank.phone, rank.batch) for rank in again.ranks] == [
        (0, "p1-01", 11),
        (1, "p1-02", 11),
        (2, "p2-02", 10),
    ]
    assert (again.global_batch, again.attempt) == (SPEC.global_batch, 1)


def test_rebalanced_batches_are_kept() -> None:
    assert [rank.batch for rank in next_attempt(SPEC, FOUR, 1, batches=(10, 10, 10, 2)).ranks] == [10, 10, 10, 2]
    assert [rank.batch for rank in next_attempt(SPEC, FOUR, 1, batches=(11, 11, 10, 0)).ranks] == [10, 11, 10, 1]
    assert [rank.batch for rank in next_attempt(SPEC, FOUR[2:], 1, batches=(16, 16, 0, 0)).ranks] == [16, 16]


def test_a_rejoining_phone_gets_as_many_images_as_batch_normalization_needs() -> None:
    spec = replace(SPEC, compute=replace(SPEC.compute, min_micro_batch=2))
    batches = [rank.batch for rank in next_attempt(spec, FOUR, 1, batches=(11, 11, 10, 0)).ranks]
    assert (sum(batches), min(batches)) == (32, 2)
    ranks = tuple(replace(rank, batch=1) for rank in spec.ranks)
    with pytest.raises(UsageError, match="a global batch of 4 is not enough for 4 phones"):
        next_attempt(replace(spec, ranks=ranks), FOUR, 1)


def test_autotuned_settings_are_kept_unless_implausible() -> None:
    auto = replace(SPEC, communication=CommunicationSpec("auto", "auto"))
    choice = CommPlanEvent(algorithm="hierarchical", wire="fp16", bucket_bytes=8 << 20, group=2)
    again = next_attempt(auto, FOUR, 1, choice=choice)
    assert again.communication == CommunicationSpec("hierarchical", "fp16", bucket_bytes=8 << 20, group_size=2)
    again = next_attempt(auto, FOUR, 1, choice=replace(choice, bucket_bytes=1, group=10**6))
    assert again.communication == CommunicationSpec("hierarchical", "fp16")


def test_a_resumed_run_is_a_new_run_with_the_same_settings() -> None:
    resumed = build_resumed_spec(replace(SPEC, attempt=3, weights="w.safetensors"), FOUR[:2], 12, LaunchRequest())
    assert (resumed.attempt, resumed.parent, resumed.resume) == (
        0,
        SPEC.run_id,
        ResumeSpec(12, file="resume.safetensors"),
    )
    assert (resumed.global_batch, resumed.steps, resumed.weights) == (SPEC.global_batch, SPEC.steps, "")
    with pytest.raises(UsageError, match="has completed 20 steps"):
        build_resumed_spec(SPEC, FOUR, 20, LaunchRequest())
    check_resume(make_request({"steps": 40, "recovery.max_restarts": 3}))
    with pytest.raises(UsageError, match="--lr cannot change"):
        check_resume(make_request({"optimizer.learning_rate": 0.1}))
