"""Whether a run is restarted, and on which phones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.inventory.model import Phone
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.restart_policy import (
    MAX_ATTEMPTS_WITHOUT_STEP,
    FailureHistory,
    NoRestart,
    describe_restart,
    restart_limit_reached,
    select_phones,
)
from tests.orchestrator.supervisor.samples import FOUR, KILLED, idle, record, unreachable

NONE = FailureHistory()


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
    history = NONE.after_staging_failure(["p1-02", "p2-01"])
    assert len(names(select_phones(record(), idle(), history))) == 4
    history = history.after_staging_failure(["p1-02"])
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
    probes = [Probe(phone, in_memory=((0, 7),)) for phone in FOUR]
    three = record(phones=("p1-01", "p1-02", "p2-01"), spares=("p2-02",))
    assert describe_restart(record(), KILLED, FOUR, probes) == (
        "p2-01 (sw2:1): rank was killed; restarting from step 7 on 4 phones"
    )
    assert describe_restart(three, None, FOUR[1:], idle()) == (
        "restarting from the start on 3 phones, with spare p2-02 (sw2:2)"
    )
