"""Diagnosis from the log of mpirun and from error events. The logs in data/ come from runs broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.records.causes import Cause
from orchestrator.records.events import ErrorEvent, parse_event
from orchestrator.supervisor.diagnosis import DESCRIPTIONS, diagnose_failure
from tests.orchestrator.launch.samples import event, spec

DATA = Path(__file__).parent / "data"
POWER_CUT = (DATA / "power-cut.log").read_text()
LOST_WHILE_STARTING = (DATA / "lost-while-starting.log").read_text()
RANK_KILLED = (DATA / "rank-killed.log").read_text()
SPEC = spec(4, switches=2)
NO_ROUTE = "ssh: connect to host 10.77.2.2 port 8022: No route to host\n"
ENDED = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[12875,1],2]
  Exit code:    1
"""
DENIED = "termux@10.77.1.2: Permission denied (publickey).\n"


def error_event(line: bytes) -> ErrorEvent:
    parsed = parse_event(line)
    assert isinstance(parsed, ErrorEvent)
    return parsed


@pytest.mark.parametrize(
    ("log", "headline", "cause"),
    [
        (POWER_CUT, "p2-02 (sw2:2): lost contact: power, cable, or Termux was killed", Cause.LOST_CONTACT),
        (LOST_WHILE_STARTING, "p2-02 (sw2:2): closed the connection to the head phone", Cause.LOGIN_FAILED),
        (NO_ROUTE, "p2-02 (sw2:2): unreachable from the head phone (No route to host)", Cause.LOGIN_FAILED),
        (RANK_KILLED, "p2-01 (sw2:1): rank was killed (signal 9 (Killed))", Cause.RANK_KILLED),
        (ENDED, "p2-01 (sw2:1): rank ended with an error", Cause.RANK_FAILED),
        (DENIED, "p1-02 (sw1:2): does not let the head phone log in", Cause.LOGIN_FAILED),
        ("something else\nlast line", "last line", Cause.UNKNOWN),
        ("", "mpirun ended without a message", Cause.UNKNOWN),
    ],
)
def test_the_mpirun_log_leads_to_a_phone_and_port(log: str, headline: str, cause: Cause) -> None:
    found = diagnose_failure(SPEC, None, log)
    assert (found.headline, found.cause) == (headline, cause)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("out_of_memory", Cause.OUT_OF_MEMORY),
        ("disk_full", Cause.DISK_FULL),
        ("data_damaged", Cause.RANK_FAILED),
        ("from_a_newer_agent", Cause.RANK_FAILED),
    ],
)
def test_the_code_of_a_rank_s_error_tells_the_cause(code: str, cause: Cause) -> None:
    error = error_event(event("error", 1.0, phone="p2-02", rank=3, message="any words", code=code))
    assert diagnose_failure(SPEC, error, RANK_KILLED).cause is cause


def test_a_crash_is_told_from_a_kill() -> None:
    crashed = diagnose_failure(SPEC, None, RANK_KILLED.replace("signal 9 (Killed)", "signal 11 (Segmentation fault)"))
    assert (crashed.cause, crashed.certain) == (Cause.RANK_CRASHED, False)


def test_the_error_that_a_phone_reports_takes_precedence_over_the_mpirun_log() -> None:
    error = error_event(event("error", 1.0, phone="p2-02", rank=3, message="shard is damaged\x1b[2J"))
    found = diagnose_failure(SPEC, error, RANK_KILLED)
    assert found.headline == "p2-02 (sw2:2): shard is damaged\\x1b[2J"
    assert any("signal 9" in line for line in found.log_tail)


def test_an_error_of_a_phone_outside_the_attempt_blames_no_other_phone() -> None:
    error = error_event(event("error", 1.0, phone="p9-01", rank=2, message="sample 3 is damaged"))
    assert (
        diagnose_failure(SPEC, error, NO_ROUTE).headline
        == "p2-02 (sw2:2): unreachable from the head phone (No route to host)"
    )
    assert diagnose_failure(SPEC, error, "").rank is None


def test_an_unknown_address_blames_no_phone() -> None:
    assert diagnose_failure(SPEC, None, NO_ROUTE.replace("10.77.2.2", "192.0.2.1")).rank is None


def test_an_error_that_names_no_phone_yields_to_the_mpirun_log() -> None:
    error = error_event(event("error", 1.0, phone=None, rank=None, message="mpirun ended with code 1\nlast lines"))
    assert diagnose_failure(SPEC, error, RANK_KILLED).headline == "p2-01 (sw2:1): rank was killed (signal 9 (Killed))"
    assert diagnose_failure(SPEC, error, "").headline == "mpirun ended with code 1"


def test_the_log_tail_skips_separator_lines() -> None:
    assert diagnose_failure(SPEC, None, RANK_KILLED).log_tail[-1].startswith("mpirun noticed that process rank 2")
    assert all(line.strip("- ") for line in diagnose_failure(SPEC, None, POWER_CUT).log_tail)


def test_an_mpi_error_of_a_neighbor_is_not_the_cause() -> None:
    complaint = error_event(
        event("error", 1.0, phone="p1-02", rank=1, message="Exception: MPI_ERR_OTHER", code="mpi_failed", fault="phone")
    )
    assert diagnose_failure(SPEC, complaint, RANK_KILLED).cause is Cause.RANK_KILLED
    assert diagnose_failure(SPEC, complaint, "").headline.startswith("p1-02 (sw1:2): Exception")
    mistake = error_event(event("error", 1.0, phone="p1-02", rank=1, message="no such layer", fault="work"))
    assert diagnose_failure(SPEC, mistake, RANK_KILLED).permanent


@pytest.mark.parametrize(
    ("log", "cause", "certain"),
    [
        (RANK_KILLED, Cause.RANK_KILLED, True),
        (RANK_KILLED.replace("signal 9 (Killed)", "signal 7 (Bus error)"), Cause.RANK_CRASHED, False),
        (POWER_CUT, Cause.LOST_CONTACT, False),
        (NO_ROUTE, Cause.LOGIN_FAILED, False),
        (ENDED, Cause.RANK_FAILED, False),
        ("", Cause.UNKNOWN, False),
    ],
)
def test_the_cause_is_a_code_and_only_sigkill_is_certain(log: str, cause: Cause, certain: bool) -> None:  # noqa: FBT001
    found = diagnose_failure(SPEC, None, log)
    assert (found.cause, found.certain) == (cause, certain)


def test_every_cause_has_a_description() -> None:
    assert set(DESCRIPTIONS) == set(Cause)
