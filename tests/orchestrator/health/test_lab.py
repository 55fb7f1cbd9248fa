"""Examination of broken virtual phones: each fault is reported with evidence and remedy, within the time limit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.examination import LIMIT_S
from tests.labs import CLUSTERCTL, TestLab, namespaces_missing, running_lab
from tests.orchestrator.health.faults import FIRST, SECOND, Detection, Fault, detections, restart

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(namespaces_missing() is not None, reason=f"no lab: {namespaces_missing()}"),
]


def examine(lab: TestLab, *flags: str) -> dict[str, Any]:
    """Run doctor, within its time limit."""
    command = [*CLUSTERCTL, "doctor", "--json", *flags]
    limit = None if "--fix" in flags else LIMIT_S
    done = subprocess.run(
        command,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in {0, 1}, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["healthy"] == (done.returncode == 0)
    return report


def serious(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["check"], each["folded"]) for each in report["findings"] if each["severity"] != "note"]


@contextmanager
def with_faults(lab: TestLab, faults: Sequence[Fault]) -> Iterator[None]:
    injected: list[Fault] = []
    try:
        for fault in faults:
            injected.append(fault)
            fault.inject(lab)
        yield
    finally:
        for fault in injected:
            fault.repair(lab)


def test_phones_are_examined_fixed_and_examined_again(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    bare = Fault("environment", 4, "p1-02", ("environment=bare",), "command not found", ("environment=termux",))
    no_tmpdir = Fault("temporary-files", 10, "p2-01", ("tmpdir=missing",), "TMPDIR is unset", ("tmpdir=ok",))
    no_route = Fault("outbound", 12, "p2-02", ("outbound=blocked",), "unreachable", ("outbound=ok",))
    with with_faults(lab, (bare, no_tmpdir, no_route)):
        try:
            found = list(detections(report := examine(lab, "--fix"), (no_route,)))
            assert found[0].correct, report
            assert found[0].kind == "adb"
            resolved = {(each["check"], each["phone"]) for each in report["resolved"]}
            assert {("environment", "p1-02"), ("temporary-files", "p2-01")} <= resolved
            assert [each for each in serious(report) if each[0] != "outbound"] == []
            refused = lab.clusterctl("launch", "--dry-run", check=False)
            assert refused.returncode == 1
            assert "p2-02 (sw2:2): SSH reaches the phone over eth0, but connections it" in refused.stderr
            assert {"restart-sshd", "wake-lock"} == {each["fix"] for each in report["fixes"] if each["ok"]}
        finally:
            for phone in ("p1-02", "p2-01"):  # stop the boot script, which now restarts sshd
                lab.on(phone, "pkill", "-f", "termux/boot/00-clusterctl", check=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_row_of_the_table_is_detected(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[Detection] = []
    with running_lab(12, 2) as lab:
        lab.clusterctl("provision")
        restart(lab, "p1-02")  # its sshd then runs under the boot script
        assert serious(examine(lab)) == []
        for faults in (FIRST, SECOND):
            with with_faults(lab, faults):
                found += detections(examine(lab), faults)
    rows = {each.fault.row for each in found if each.correct and each.fault.row}
    table = sorted(found, key=lambda each: each.fault.row or 99)
    with capsys.disabled():
        print("", *table, f"{len(rows)} of 25", sep="\n")  # noqa: T201  (this table is what the test is for)
    assert [str(each) for each in found if not each.correct] == []
    assert rows == {each.row for each in ALL_CHECKS if each.row}
