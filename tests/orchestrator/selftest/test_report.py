"""The report file: bounded, honest about virtual phones, and free of secrets."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.inventory.model import Phone
from orchestrator.selftest.assumptions import CLOCK, SESSION, all_assumptions
from orchestrator.selftest.document import HIDDEN, document, redact, write
from orchestrator.selftest.host_checks import SessionProbe, check_clock, check_preload, check_session
from orchestrator.selftest.query import read_result
from orchestrator.selftest.report import AssumptionResult, PhoneReport, assess
from phone_agent.contract.assumptions import Assumption, CheckResult, Status, failed, ok, unknown
from phone_agent.contract.decode import decode
from phone_agent.contract.replies import CheckRow

PHONE = Phone("p1-01", "sw1", 1, IPv4Address("10.77.1.1"), mac="02:00:5e:10:00:01", serial="R58M12ABCDE")
REAL = False  # not a virtual phone
REQUIRED = Assumption("mpirun", "mpirun starts", required=True)
SIMULATED = Assumption("kernel", "Linux 4.14", lab_caveat="uses this computer's kernel")
TERMUX = {
    "PATH": "/data/data/com.termux/files/usr/bin",
    "PREFIX": "/data/data/com.termux/files/usr",
    "TMPDIR": "/data/data/com.termux/files/usr/tmp",
    "tmpdir_writable": "yes",
    "env_script": "fine",
    "epoch": "1000.5",
}


def test_simulated_results_of_a_virtual_phone_are_unknown() -> None:
    found = ok("Linux 6.1")
    assert assess(SIMULATED, found, 0, virtual=False).status is Status.OK
    virtual = assess(SIMULATED, found, 0, virtual=True)
    assert virtual.status is Status.UNKNOWN
    assert virtual.detail == "not testable on a virtual phone (uses this computer's kernel); result: Linux 6.1"


@pytest.mark.parametrize(
    ("found", "good"), [(ok("fine"), "ok"), (failed("no route"), ""), (unknown("it did not say"), "")]
)
def test_only_required_checks_decide(found: CheckResult, good: str) -> None:
    other = AssumptionResult(CLOCK, Status.FAILED, "90 s off")
    report = PhoneReport(PHONE, REAL, (assess(REQUIRED, found, 0, virtual=False), other))
    assert report.ok is bool(good)


def test_a_phone_with_an_error_is_not_ok() -> None:
    assert not PhoneReport(PHONE, REAL, (), error="connection lost").ok


def test_the_file_is_readable_and_has_no_secrets(tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJd0vHuM4p3Jb0Z9m8m1r1Ow0mXW3V2u6r6Q7F3k9abc me@host"
    pem = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk=\n-----END OPENSSH PRIVATE KEY-----"
    evidence: dict[str, Any] = {
        "interfaces": {"eth0 02-00-5E-10-00-01": "AB:cd:00:11:22:33"},
        "notes": [key, pem, "serial r58m12abcde", "imei 356938035643809"],
        "figure": 356938035643809,
    }
    report = PhoneReport(PHONE, REAL, (AssumptionResult(REQUIRED, Status.OK, "serial R58M12ABCDE", evidence, 1.5),))
    path = write(report, tmp_path, 0.0)
    assert path.name == "selftest-p1-01-19700101-000000.json"
    text = path.read_text()
    for secret in ("5e:10", "5E-10", "R58M12", "r58m12", "AAAAC3", "b3Blbn", "cd:00:11", "imei 356938035643809"):
        assert secret not in text, secret
    whole = json.loads(text)
    assert whole["read_me"][0].startswith("clusterctl selftest of p1-01 (sw1:1), 1970-01-01 00:00 UTC: 1 ok")
    assert "ok      mpirun (required): mpirun starts." in whole["read_me"]
    assert whole["phone"]["mac"] == whole["phone"]["serial"] == HIDDEN


def test_show_ids_keeps_identifiers() -> None:
    detail = document(PhoneReport(PHONE, REAL, ()), 0.0, show_ids=True)
    assert detail["phone"]["mac"] == PHONE.mac


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=40)
def test_redaction_removes_secrets_from_any_json(document: Any) -> None:
    redacted = redact({"note": f"a Secret: {document!r}", "document": document}, ("secret",))
    assert "secret" not in repr(redacted).casefold()
    assert redacted["note"].startswith("a (hidden): ")


@given(st.dictionaries(st.sampled_from(["status", "detail", "evidence", "check"]), JSON))
@settings(max_examples=60)
def test_any_row_becomes_a_bounded_result(row: dict[str, Any]) -> None:
    found = read_result(decode(CheckRow, {**row, "check": "kernel"}))
    assert isinstance(found.status, Status)
    assert len(found.detail) <= 600
    assert found.detail.isprintable()
    assert len(json.dumps(found.evidence)) <= 20_000


def test_oversized_evidence_is_omitted() -> None:
    assert (
        "omitted"
        in read_result(CheckRow("kernel", Status.OK, "", {str(each): "y" * 300 for each in range(100)})).evidence
    )


def session(**changes: str) -> SessionProbe:
    return SessionProbe({**TERMUX, **changes}, (1000.0, 1001.0))


def test_a_termux_session_is_ok() -> None:
    assert check_session(session()).status is Status.OK
    assert check_preload(session()).status is Status.OK
    assert check_clock(session()).status is Status.OK


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"PATH": "/system/bin"}, "PATH has no $PREFIX/bin"),
        ({"PREFIX": ""}, "PREFIX is not set"),
        ({"tmpdir_writable": "no"}, "TMPDIR is not set or not writable"),
        ({"LD_LIBRARY_PATH": "/vendor/lib64"}, "LD_LIBRARY_PATH is set"),
    ],
)
def test_wrong_sessions_fail(changes: dict[str, str], detail: str) -> None:
    found = check_session(session(**changes))
    assert found.status is Status.FAILED
    assert detail in found.detail


def test_failing_scripts_and_wrong_clocks() -> None:
    assert check_preload(session(env_script="bad interpreter")).status is Status.FAILED
    assert check_preload(session(env_script="")).status is Status.UNKNOWN
    assert check_clock(session(epoch="1093.5")).detail == "92.5 s off this computer's clock"
    assert check_clock(session(epoch="soon")).status is Status.UNKNOWN


def test_two_phones_have_more_checks() -> None:
    one, two = ({each.name for each in all_assumptions(phones)} for phones in (1, 2))
    assert two - one == {"neighbor-login", "allreduce"}
    assert all_assumptions(1)[0] == SESSION
