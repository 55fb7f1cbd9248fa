"""Whether a run is restarted, and on which phones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.inventory.model import Phone
from orchestrator.records.checkpoints import FoundCheckpoint
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.restart_policy import (
    MAX_ATTEMPTS_WITHOUT_STEP,
    FailureHistory,
    NoRestart,
    describe_lost_state,
    describe_restart,
    restart_limit_reached,
    select_phones,
    without_implausible_state,
)
from orchestrator.supervisor.resume_point import ResumePoint
from phone_agent.contract.committed_step import CommittedStep
from tests.orchestrator.supervisor.samples import FOUR, KILLED, idle, record, unreachable

NONE = FailureHistory()
STEP_6, STEP_7 = CommittedStep(6, 0), CommittedStep(7, 0)
CHECKPOINT = ResumePoint(checkpoint=FoundCheckpoint(Path("checkpoint-00000005.safetensors"), 5))


def names(selected: tuple[Phone, ...] | NoRestart) -> list[str]:
    assert isinstance(selected, tuple)
    return [phone.name for phone in selected]


def test_a_failure_of_a_phone_allows_a_restart() -> None:
    assert restart_limit_reached(record(), NONE, KILLED) is None


def test_a_permanent_failure_allows_no_restart() -> None:
    assert restart_limit_reached(record(), NONE, replace(KILLED, permanent=True)) is not None


def test_restarts_are_limited() -> None:
    refusal = restart_limit_reached(record(restarts=20), NONE, KILLED)
    assert refusal is not None
    assert "--max-restarts 20" in refusal.reason


def test_attempts_without_a_step_are_limited_until_a_step_completes() -> None:
    history = NONE
    for _ in range(MAX_ATTEMPTS_WITHOUT_STEP - 1):
        history = history.after_failure(KILLED)
    assert restart_limit_reached(record(), history, KILLED) is None
    history = history.after_failure(KILLED)
    assert restart_limit_reached(record(), history, KILLED) is not None
    assert restart_limit_reached(record(), history.after_step(), KILLED) is None


def test_spares_replace_phones_that_do_not_answer() -> None:
    probes = unreachable("p2-01")
    three = record(requested=("p1-01", "p1-02", "p2-01"), spares=("p2-02",))
    assert names(select_phones(three, probes, NONE)) == ["p1-01", "p1-02", "p2-02"]
    assert names(select_phones(record(), probes, NONE)) == ["p1-01", "p1-02", "p2-02"]
    assert names(select_phones(three, idle(), NONE)) == ["p1-01", "p1-02", "p2-01"], "the spare is spare again"


def test_with_too_few_phones_the_run_waits() -> None:
    refusal = select_phones(record(), unreachable("p1-02", "p2-01", "p2-02"), NONE)
    assert isinstance(refusal, NoRestart)
    assert refusal.reason == "1 of 4 phones left, at least 3 needed (--min-phones): waiting for phones"


@pytest.mark.parametrize(
    ("refusal", "headline"),
    [
        (NoRestart(""), "p2-01 (sw2:1): rank was killed"),
        (NoRestart("too often"), "p2-01 (sw2:1): rank was killed; too often"),
    ],
)
def test_the_reason_is_added_to_the_failure_that_led_to_it(refusal: NoRestart, headline: str) -> None:
    assert refusal.explain(KILLED).headline == headline


def test_a_phone_that_rejects_the_files_twice_is_left_out() -> None:
    history = NONE.after_failed_start(["p1-02", "p2-01"])
    assert len(names(select_phones(record(), idle(), history))) == 4
    history = history.after_failed_start(["p1-02"])
    assert names(select_phones(record(), idle(), history)) == ["p1-01", "p2-01", "p2-02"]


def test_a_phone_that_fails_twice_is_left_out_until_a_step_completes() -> None:
    once = NONE.after_failure(KILLED)
    assert len(names(select_phones(record(), idle(), once))) == 4
    twice = once.after_failure(KILLED)
    assert names(select_phones(record(), idle(), twice)) == ["p1-01", "p1-02", "p2-02"]
    assert len(names(select_phones(record(), idle(), twice.after_step()))) == 4


def test_a_phone_that_was_lost_more_often_is_probed_less_often() -> None:
    history = NONE.after_failure(KILLED).after_failure(KILLED)
    assert history.rejoin_probe_s("p2-01") > history.rejoin_probe_s("p1-01")


def test_data_is_verified_if_a_phone_failed_or_the_end_was_not_observed() -> None:
    assert NONE.should_verify_data(FOUR), "the end of the last attempt was not observed"
    history = NONE.after_failure(KILLED)
    assert history.should_verify_data([phone for phone in FOUR if phone.name == KILLED.phone])
    assert not history.should_verify_data([phone for phone in FOUR if phone.name != KILLED.phone])


def test_a_restart_is_described_with_its_failure_step_and_spares() -> None:
    three = record(phones=("p1-01", "p1-02", "p2-01"), spares=("p2-02",))
    assert describe_restart(record(), KILLED, FOUR, ResumePoint(STEP_7)) == (
        "p2-01 (sw2:1): rank was killed; restarting from step 7 on 4 phones"
    )
    assert describe_restart(three, None, FOUR[1:], ResumePoint()) == (
        "restarting from the start on 3 phones, with spare p2-02 (sw2:2)"
    )


# ------------------------------------------------------------------------------------------- state held by phones


def test_a_spare_that_alone_holds_the_newest_state_keeps_its_place() -> None:
    three = record(requested=("p1-01", "p1-02", "p2-01"), spares=("p2-02",))
    probes = (*idle()[:3], Probe(FOUR[3], in_memory=(STEP_7,)))
    assert names(select_phones(three, probes, NONE)) == ["p1-01", "p1-02", "p2-02"]
    older = (Probe(FOUR[0], in_memory=(STEP_6,)), *probes[1:])
    assert names(select_phones(three, older, NONE)) == ["p1-01", "p1-02", "p2-02"]
    same = (Probe(FOUR[0], in_memory=(STEP_7,)), *probes[1:])
    assert names(select_phones(three, same, NONE)) == ["p1-01", "p1-02", "p2-01"]


def test_a_phone_without_room_is_left_out_even_if_it_alone_holds_the_state() -> None:
    probes = (Probe(FOUR[0], in_memory=(STEP_7,), disk_mb=1.0), *idle()[1:])
    assert names(select_phones(record(), probes, NONE)) == ["p1-02", "p2-01", "p2-02"]
    assert describe_lost_state(probes, FOUR[1:], CHECKPOINT) == (
        "phones that hold step 7 in memory cannot take part (p1-01 (sw1:1): disk is full (1 MB free)): "
        "resuming from checkpoint-00000005.safetensors (step 5)"
    )


def test_lost_state_is_reported_only_if_it_is_lost() -> None:
    holding = tuple(Probe(phone, in_memory=(STEP_6,)) for phone in FOUR)
    assert describe_lost_state(holding, FOUR, ResumePoint(STEP_6)) is None
    assert describe_lost_state(holding, FOUR[1:], ResumePoint(STEP_6)) is None
    assert describe_lost_state(idle(), FOUR, CHECKPOINT) == (
        "no phone has the training state in memory: resuming from checkpoint-00000005.safetensors (step 5)"
    )


def test_memory_older_than_the_checkpoint_is_reported_as_such() -> None:
    cut_off = (Probe(FOUR[0], in_memory=(CommittedStep(3, 0),)), *idle()[1:])
    assert describe_lost_state(cut_off, FOUR, CHECKPOINT) == (
        "no phone has a state newer than step 3 in memory: resuming from checkpoint-00000005.safetensors (step 5)"
    )


def test_implausible_state_is_ignored() -> None:
    """A phone may claim anything."""
    claims = (STEP_7, CommittedStep(21, 0), CommittedStep(7, 3))
    probe = without_implausible_state(Probe(FOUR[0], in_memory=claims, checkpoint_step=21), record(attempt=2))
    assert (probe.in_memory, probe.checkpoint_step) == ((STEP_7,), 0)
