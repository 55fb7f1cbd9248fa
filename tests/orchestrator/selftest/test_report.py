"""What phones say becomes a file that can be sent: bounded, honest about virtual phones, and without secrets."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.inventory.model import Phone
from orchestrator.selftest.assumptions import CLOCK, SESSION, all_beliefs
from orchestrator.selftest.document import document, write
from orchestrator.selftest.query import parse
from orchestrator.selftest.redact import HIDDEN, masked
from orchestrator.selftest.report import Answer, PhoneReport, answered
from orchestrator.selftest.session import Session, judge_clock, judge_preload, judge_session
from phone_agent.contract.assumptions import Belief, Found, Status, failed, ok, unknown

PHONE = Phone("p1-01", "sw1", 1, IPv4Address("10.77.1.1"), mac="02:00:5e:10:00:01", serial="R58M12ABCDE")
REAL = False  # no virtual phone
NEEDED = Belief("mpirun", "mpirun starts", needed=True)
MADE_UP = Belief("kernel", "Linux 4.14", lab="its kernel is this computer's")
TERMUX = {
    "PATH": "/data/data/com.termux/files/usr/bin",
    "PREFIX": "/data/data/com.termux/files/usr",
    "TMPDIR": "/data/data/com.termux/files/usr/tmp",
    "tmpdir_writable": "yes",
    "env_script": "fine",
    "epoch": "1000.5",
}


def test_a_virtual_phone_settles_nothing_it_makes_up() -> None:
    found = ok("Linux 6.1")
    assert answered(MADE_UP, found, 0, virtual=False).status is Status.OK
    virtual = answered(MADE_UP, found, 0, virtual=True)
    assert virtual.status is Status.UNKNOWN
    assert virtual.told == "a virtual phone cannot tell: its kernel is this computer's (it shows: Linux 6.1)"


@pytest.mark.parametrize(
    ("found", "good"), [(ok("fine"), "ok"), (failed("no route"), ""), (unknown("it did not say"), "")]
)
def test_only_what_training_needs_decides(found: Found, good: str) -> None:
    other = Answer(CLOCK, Status.FAILED, "90 s off")
    report = PhoneReport(PHONE, REAL, (answered(NEEDED, found, 0, virtual=False), other))
    assert report.ok is bool(good)


def test_a_phone_that_stopped_answering_is_not_ok() -> None:
    assert not PhoneReport(PHONE, REAL, (), error="connection lost").ok


def test_the_file_reads_like_a_letter_and_holds_no_secrets(tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJd0vHuM4p3Jb0Z9m8m1r1Ow0mXW3V2u6r6Q7F3k9abc me@host"
    pem = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk=\n-----END OPENSSH PRIVATE KEY-----"
    evidence: dict[str, Any] = {
        "interfaces": {"eth0 02-00-5E-10-00-01": "AB:cd:00:11:22:33"},
        "notes": [key, pem, "serial r58m12abcde", "imei 356938035643809"],
        "figure": 356938035643809,
    }
    report = PhoneReport(PHONE, REAL, (Answer(NEEDED, Status.OK, "serial R58M12ABCDE", evidence, 1.5),))
    path = write(report, tmp_path, 0.0)
    assert path.name == "selftest-p1-01-19700101-000000.json"
    text = path.read_text()
    for secret in ("5e:10", "5E-10", "R58M12", "r58m12", "AAAAC3", "b3Blbn", "cd:00:11", "imei 356938035643809"):
        assert secret not in text, secret
    whole = json.loads(text)
    assert whole["read_me"][0].startswith("clusterctl selftest of p1-01 (sw1:1), 1970-01-01 00:00 UTC: 1 ok")
    assert "ok      mpirun (needed): mpirun starts." in whole["read_me"]
    assert whole["phone"]["mac"] == whole["phone"]["serial"] == HIDDEN


def test_identities_stay_when_they_are_asked_for() -> None:
    told = document(PhoneReport(PHONE, REAL, ()), 0.0, show_ids=True)
    assert told["phone"]["mac"] == PHONE.mac


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=40)
def test_masking_takes_anything(document: Any) -> None:
    masked(document, ("secret",))


@given(st.dictionaries(st.sampled_from(["status", "told", "evidence", "check"]), JSON))
@settings(max_examples=60)
def test_any_answer_becomes_a_bounded_finding(said: dict[str, Any]) -> None:
    found = parse(said)
    assert isinstance(found.status, Status)
    assert len(found.told) <= 600
    assert found.told.isprintable()
    assert len(json.dumps(found.evidence)) <= 20_000


def test_too_much_evidence_is_left_out() -> None:
    assert "cut" in parse({"status": "ok", "told": "", "evidence": {"x": "y" * 30_000}}).evidence


def session(**changes: str) -> Session:
    return Session({**TERMUX, **changes}, (1000.0, 1001.0))


def test_a_session_as_termux_gives_it() -> None:
    assert judge_session(session()).status is Status.OK
    assert judge_preload(session()).status is Status.OK
    assert judge_clock(session()).status is Status.OK


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"PATH": "/system/bin"}, "PATH has no $PREFIX/bin"),
        ({"PREFIX": ""}, "PREFIX is not set"),
        ({"tmpdir_writable": "no"}, "TMPDIR is not set, or cannot be written"),
        ({"LD_LIBRARY_PATH": "/vendor/lib64"}, "LD_LIBRARY_PATH is set"),
    ],
)
def test_sessions_that_are_otherwise(changes: dict[str, str], told: str) -> None:
    found = judge_session(session(**changes))
    assert found.status is Status.FAILED
    assert told in found.told


def test_scripts_that_do_not_start_and_clocks_that_are_wrong() -> None:
    assert judge_preload(session(env_script="bad interpreter")).status is Status.FAILED
    assert judge_preload(session(env_script="")).status is Status.UNKNOWN
    assert judge_clock(session(epoch="1093.5")).told == "92.5 s off this computer's"
    assert judge_clock(session(epoch="soon")).status is Status.UNKNOWN


def test_two_phones_are_asked_more_than_one() -> None:
    assert {belief.name for belief in all_beliefs(2)} - {belief.name for belief in all_beliefs(1)} == {
        "neighbour",
        "mpirun-together",
    }
    assert all_beliefs(1)[0] == SESSION
