"""What is wrong with a run that has stopped reporting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.records.causes import Cause
from orchestrator.supervisor.diagnosis import Diagnosis, diagnose_failure
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.stall_diagnosis import diagnose_lost_head, diagnose_stall, refine_diagnosis
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.startup import StartupPhase
from tests.orchestrator.supervisor.samples import FOUR, KILLED, SPEC, ended, idle, training, unreachable

SIGKILL = "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).\n"
NO_MESSAGE = Diagnosis(Cause.UNKNOWN)


def found(diagnosis: Diagnosis | None) -> tuple[Cause, str | None] | None:
    return (diagnosis.cause, diagnosis.phone) if diagnosis else None


def full_disk(name: str, probes: tuple[Probe, ...]) -> tuple[Probe, ...]:
    return tuple(replace(probe, disk_mb=0.0 if probe.phone.name == name else 900.0) for probe in probes)


# ------------------------------------------------------------------------------------------------- diagnose_stall


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        (Probe(FOUR[2], "timed out"), (Cause.PHONE_UNREACHABLE, "p2-01")),
        (Probe(FOUR[2], phase=StartupPhase.TRAINING), (Cause.RANK_MISSING, "p2-01")),
        (Probe(FOUR[2]), None),  # mpirun has not started the rank yet
        (Probe(FOUR[2], ranks=1, frozen=True), (Cause.RANK_FROZEN, "p2-01")),
        (Probe(FOUR[2], "connection refused", sshd_down=True), None),
        (Probe(FOUR[2], ranks=1, progressing=True), None),
    ],
)
def test_one_bad_phone_explains_a_stall(probe: Probe, expected: tuple[Cause, str] | None) -> None:
    probes = [*training()[:2], probe, training()[3]]
    assert found(diagnose_stall(SPEC, probes)) == expected


def test_several_missing_ranks_count_only_from_the_second_probe_on() -> None:
    """mpirun ends all ranks when one is killed, and will report which."""
    probes = [training()[0], *ended()[1:3], Probe(FOUR[3], ranks=1)]
    assert diagnose_stall(SPEC, probes) is None
    assert found(diagnose_stall(SPEC, probes, first_probe=False)) == (Cause.RANK_MISSING, "p1-02")


def test_a_failing_agent_counts_only_from_the_second_probe_on() -> None:
    probes = [*training()[:3], Probe(FOUR[3], "timed out after 6 s", agent_failed=True)]
    assert diagnose_stall(SPEC, probes) is None
    diagnosis = diagnose_stall(SPEC, probes, first_probe=False)
    assert diagnosis is not None
    assert diagnosis.headline == "p2-02 (sw2:2): agent failed: timed out after 6 s"


def test_a_busy_agent_does_not_count_while_the_ranks_start() -> None:
    busy = Probe(FOUR[3], "not done after 6 s", agent_failed=True, code=ErrorCode.TIMED_OUT)
    assert diagnose_stall(SPEC, [*training()[:3], busy], first_probe=False, starting=True) is None
    assert diagnose_stall(SPEC, [*training()[:3], busy], first_probe=False) is not None


def test_a_stopped_rank_that_starts_is_frozen_only_without_a_sign_of_life() -> None:
    stopped = Probe(FOUR[3], ranks=1, frozen=True, phase=StartupPhase.COMPILING)
    probes = [*training()[:3], stopped]
    assert diagnose_stall(SPEC, probes, starting=True) is None
    assert found(diagnose_stall(SPEC, probes, starting=True, quiet={"p2-02"})) == (Cause.RANK_FROZEN, "p2-02")


def test_a_full_disk_explains_a_stall_only_on_the_head_phone() -> None:
    diagnosis = diagnose_stall(SPEC, full_disk("p1-01", training()))
    assert diagnosis is not None
    assert diagnosis.headline == "p1-01 (sw1:1): disk is full (0 MB free)"
    assert diagnose_stall(SPEC, full_disk("p2-02", training())) is None


def test_an_unreachable_phone_takes_precedence_over_a_frozen_rank() -> None:
    probes = [Probe(FOUR[0], ranks=1, frozen=True), *training()[1:3], Probe(FOUR[3], "no answer")]
    assert found(diagnose_stall(SPEC, probes)) == (Cause.PHONE_UNREACHABLE, "p2-02")


# --------------------------------------------------------------------------------------------- diagnose_lost_head


def test_a_silent_head_phone_is_lost_if_no_step_completes_without_it() -> None:
    probes = unreachable("p1-01", others=training())
    assert diagnose_lost_head(SPEC, probes) is None
    assert found(diagnose_lost_head(SPEC, probes, step_overdue=True)) == (Cause.PHONE_UNREACHABLE, "p1-01")


@pytest.mark.parametrize(
    ("probes", "lost"),
    [
        (unreachable("p1-01"), True),  # and the ranks of the others have ended
        (unreachable("p1-01", others=training()), False),
        (idle(), False),
        (unreachable("p1-01", "p1-02", "p2-01", "p2-02"), False),  # this computer may be the one without a network
    ],
)
def test_a_silent_head_phone_is_lost_only_if_the_others_have_lost_it_too(
    probes: tuple[Probe, ...],
    lost: bool,  # noqa: FBT001
) -> None:
    assert (diagnose_lost_head(SPEC, probes) is not None) is lost


# ----------------------------------------------------------------------------------------------- refine_diagnosis


def test_a_phone_that_no_longer_answers_is_the_cause() -> None:
    assert found(refine_diagnosis(NO_MESSAGE, SPEC, unreachable("p2-02"))) == (Cause.PHONE_UNREACHABLE, "p2-02")
    assert refine_diagnosis(KILLED, SPEC, idle()) == KILLED


def test_several_silent_phones_are_named_together_unless_one_was_blamed_already() -> None:
    both = unreachable("p2-01", "p2-02")
    assert found(refine_diagnosis(KILLED, SPEC, both)) == (Cause.PHONE_UNREACHABLE, "p2-01")
    diagnosis = refine_diagnosis(NO_MESSAGE, SPEC, both)
    assert diagnosis.headline == "p2-01 (sw2:1), p2-02 (sw2:2) do not answer: cable, switch or power"
    assert (diagnosis.cause, diagnosis.phones) == (Cause.PHONE_UNREACHABLE, ("p2-01", "p2-02"))


def test_a_certain_diagnosis_yields_only_to_an_unreachable_phone() -> None:
    killed = diagnose_failure(SPEC, None, SIGKILL)
    assert killed.certain
    no_sshd = [Probe(phone, "refused" if phone.name == "p1-02" else None, sshd_down=True) for phone in FOUR]
    assert refine_diagnosis(killed, SPEC, no_sshd) == killed
    assert refine_diagnosis(killed, SPEC, full_disk("p2-01", idle())) == killed
    assert found(refine_diagnosis(killed, SPEC, unreachable("p1-02"))) == (Cause.PHONE_UNREACHABLE, "p1-02")


def test_lost_contact_between_two_phones_that_answer_blames_both() -> None:
    """As observed when the cable of the head phone itself was loose."""
    lost = diagnose_failure(SPEC, None, "  Remote daemon: [[20351,0],2] on node 10.77.2.1\n")
    assert found(lost) == (Cause.LOST_CONTACT, "p2-01")
    refined = refine_diagnosis(lost, SPEC, idle())
    assert (refined.cause, refined.phone, refined.phones) == (Cause.LOST_CONTACT, None, ("p1-01", "p2-01"))
    assert found(refine_diagnosis(lost, SPEC, unreachable("p2-01"))) == (Cause.PHONE_UNREACHABLE, "p2-01")


@pytest.mark.parametrize(
    "log",
    [
        "MPI_ABORT was invoked on rank 2 in communicator",
        "Peer host:  10.77.2.1",
        "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 7 (Bus error).",
    ],
)
def test_a_full_disk_explains_the_symptoms_in_the_mpirun_log(log: str) -> None:
    """As observed with Open MPI on a phone that could not write the files of its session."""
    refined = refine_diagnosis(diagnose_failure(SPEC, None, log), SPEC, full_disk("p2-01", idle()))
    assert found(refined) == (Cause.DISK_FULL, "p2-01")
