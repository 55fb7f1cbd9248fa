"""`clusterctl selftest` on virtual phones, which run our programs but not Android."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.selftest.assumptions import all_assumptions
from tests.labs import TestLab

pytestmark = pytest.mark.lab


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["check"]: check for check in document["checks"]}


def test_two_phones_report_every_check(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    lab = provisioned_lab4
    lab.clusterctl("lab", "set", "p1-02", "battery.status=DISCHARGING", "thermal=denied")
    try:
        done = lab.clusterctl("selftest", "p1-01", "p1-02", "--out", str(tmp_path), "--json", check=False)
    finally:
        lab.clusterctl("lab", "set", "p1-02", "battery.status=CHARGING", "thermal=readable")
    assert done.returncode == 0, done.stdout + done.stderr
    documents = json.loads(done.stdout)
    assert [each["phone"]["name"] for each in documents] == ["p1-01", "p1-02"]
    expected = {assumption.name: assumption for assumption in all_assumptions(2)}
    for each in documents:
        checks = by_name(each)
        assert list(checks) == list(expected)
        assert {name for name, check in checks.items() if check["required"] and check["status"] != "ok"} == set()
        simulated = {name for name, assumption in expected.items() if assumption.lab_caveat}
        assert {name for name, check in checks.items() if check["status"] == "unknown"} == simulated
        assert each["phone"]["virtual"]
        assert "proves nothing" in " ".join(each["read_me"])
        saved = json.loads(Path(each["file"]).read_text())
        assert {**saved, "file": each["file"]} == each
    assert "DISCHARGING" in by_name(documents[1])["charging"]["detail"]
    assert "none of the processor" in by_name(documents[1])["thermal-zones"]["detail"]
    assert (
        "connected to 10.77.0.1 from 10.77.1.1, seen there as 10.77.1.1" in by_name(documents[0])["outbound"]["detail"]
    )
    left = lab.on("p1-01", "ls", "-A", ".clusterctl").stdout.split()
    assert not [name for name in left if name.startswith("selftest-")]


def test_a_phone_without_python_reports_what_it_can(lab4: TestLab, tmp_path: Path) -> None:
    def run_selftest() -> dict[str, Any]:
        done = lab4.clusterctl("selftest", "p1-01", "--out", str(tmp_path), "--json", check=False)
        assert done.returncode == 1
        (document,) = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    assert run_selftest()["error"] == "host key not known yet"  # provision stores it
    lab4.clusterctl("provision", "--dry-run", "--limit", "p1-01")
    try:
        document = run_selftest()
    finally:
        lab4.clusterctl("hosts", "forget", "p1-01")
    assert document["error"] == "python3 is not in the PATH"
    checks = by_name(document)
    assert checks["session"]["status"] == "ok"
    assert checks["core"]["detail"] == "not tested"


@pytest.mark.parametrize(
    ("arguments", "message"), [(("nobody",), "nobody"), (("p1-01", "--interactive"), "needs a terminal")]
)
def test_bad_usage_changes_nothing(lab4: TestLab, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = lab4.clusterctl("selftest", *arguments, "--out", str(tmp_path / "out"), check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()
