"""What mpirun prints when a run breaks, and whom that blames. The files in data/ are from runs broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.records.events import parse_event
from orchestrator.supervisor.diagnosis import diagnose
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


@pytest.mark.parametrize(
    ("log", "headline"),
    [
        (POWER_CUT, "p2-02 (sw2:2): lost contact: power, cable or a killed Termux"),
        (LOST_WHILE_STARTING, "p2-02 (sw2:2): it hung up on the head phone"),
        (NO_ROUTE, "p2-02 (sw2:2): the head phone cannot reach it (No route to host)"),
        (RANK_KILLED, "p2-01 (sw2:1): its rank was killed (signal 9 (Killed))"),
        (ENDED, "p2-01 (sw2:1): its rank ended with an error"),
        (DENIED, "p1-02 (sw1:2): the head phone may not log in to it"),
        ("something else\nlast word", "last word"),
        ("", "mpirun left no word"),
    ],
)
def test_mpirun_s_words_lead_to_a_phone_and_port(log: str, headline: str) -> None:
    assert diagnose(SPEC, None, log).headline == headline


def test_a_phone_s_own_error_goes_before_what_mpirun_noticed_later() -> None:
    error = parse_event(event("error", 1.0, phone="p2-02", rank=3, message="shard is damaged\x1b[2J"))
    found = diagnose(SPEC, error, RANK_KILLED)
    assert found.headline == "p2-02 (sw2:2): shard is damaged\\x1b[2J"
    assert any("signal 9" in line for line in found.tail)


def test_an_error_of_a_phone_that_takes_no_part_any_more_blames_nobody_else() -> None:
    error = parse_event(event("error", 1.0, phone="p9-01", rank=2, message="sample 3 is damaged"))
    assert (
        diagnose(SPEC, error, NO_ROUTE).headline == "p2-02 (sw2:2): the head phone cannot reach it (No route to host)"
    )
    assert diagnose(SPEC, error, "").phone is None


def test_an_unknown_address_blames_nobody() -> None:
    assert diagnose(SPEC, None, NO_ROUTE.replace("10.77.2.2", "192.0.2.1")).phone is None


def test_an_error_that_names_nobody_leaves_the_word_to_mpirun() -> None:
    error = parse_event(event("error", 1.0, phone=None, rank=None, message="mpirun ended with code 1\nlast words"))
    assert diagnose(SPEC, error, RANK_KILLED).headline == "p2-01 (sw2:1): its rank was killed (signal 9 (Killed))"
    assert diagnose(SPEC, error, "").headline == "mpirun ended with code 1"


def test_the_tail_has_no_frames() -> None:
    assert diagnose(SPEC, None, RANK_KILLED).tail[-1].startswith("mpirun noticed that process rank 2")
    assert all(line.strip("- ") for line in diagnose(SPEC, None, POWER_CUT).tail)
