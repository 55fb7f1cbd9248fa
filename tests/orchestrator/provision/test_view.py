from __future__ import annotations

import pytest

from orchestrator.provision.engine import StepResult, StepStatus
from orchestrator.provision.report import LAST_STEP, PhoneProvisionReport, ProvisionReport
from orchestrator.view.provision import print_report
from tests.orchestrator.provision.samples import phone

TESTED = StepResult(LAST_STEP, StepStatus.OK)


def done(port: int, *steps: StepResult) -> PhoneProvisionReport:
    return PhoneProvisionReport(phone(port), (*steps, TESTED))


def shown(report: ProvisionReport, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    print_report(report, "clusterctl provision --limit @failed")
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_plan_is_folded_by_what_would_change(capsys: pytest.CaptureFixture[str]) -> None:
    planned = StepResult("packages", StepStatus.PLANNED, changes=("install python, openmpi",))
    report = ProvisionReport((done(1, planned), done(2, planned), done(3)), dry_run=True)
    out, _ = shown(report, capsys)
    assert out == "sw1:1-2 would install python, openmpi\n1 phone ready, nothing to change\n"


def test_phones_without_changes_are_reported_as_ready(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(ProvisionReport((done(1), done(2))), capsys)
    assert (out, err) == ("2 phones ready, nothing to change\n", "")


def test_a_failure_is_reported_with_phone_port_step_cause_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    failed = StepResult("sshd", StepStatus.FAILED, error="it\x1b[31m broke", remedy="mend it")
    out, err = shown(ProvisionReport((done(1), PhoneProvisionReport(phone(2), (failed,)))), capsys)
    assert out == "1 phone ready, nothing to change\n"
    for word in ("p1-02", "sw1:2", "sshd", "it\\x1b[31m broke", "mend it", "clusterctl provision --limit @failed"):
        assert word in err


def test_an_interrupted_phone_is_not_reported_as_ready(capsys: pytest.CaptureFixture[str]) -> None:
    changed = StepResult("packages", StepStatus.CHANGED, changes=("install python",))
    report = ProvisionReport((PhoneProvisionReport(phone(1), (changed,)), PhoneProvisionReport(phone(2))))
    out, err = shown(report, capsys)
    assert out == ""
    assert "2 phones not finished (sw1:1-2)" in err
    assert not report.ok


def test_the_json_document_lists_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    failed = StepResult("tcp", StepStatus.FAILED, 5.0, error="no answer", remedy="check power")
    document = ProvisionReport((PhoneProvisionReport(phone(1), (failed,)),), release="r").as_json()
    assert document["ok"] is False
    (entry,) = document["phones"]
    assert (entry["phone"], entry["port"], entry["status"]) == ("p1-01", "sw1:1", "failed")
    assert entry["steps"] == [
        {"step": "tcp", "status": "failed", "seconds": 5.0, "error": "no answer", "remedy": "check power"}
    ]
