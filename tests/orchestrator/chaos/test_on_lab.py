"""Chaos on a lab: a short campaign by default, a long one among the slow tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.labs import TestLab, namespaces_missing, running_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(namespaces_missing() is not None, reason=f"no lab: {namespaces_missing()}"),
]
RACK = Path(__file__).parents[3] / "inventory.yaml"


def run_campaign(lab: TestLab, *flags: str) -> dict[str, Any]:
    done = lab.clusterctl("chaos", "--json", *flags, check=False)
    assert done.returncode in {0, 1}, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["passed"], json.dumps(report, indent=1)
    assert done.returncode == 0
    return report


def test_a_short_campaign_gives_bitwise_equal_results(provisioned_lab4: TestLab) -> None:
    """One run with a viewer, one without."""
    kinds = ("rank killed", "host dies", "host reboot")
    only = [word for kind in kinds for word in ("--only", kind)]
    report = run_campaign(provisioned_lab4, "--faults", "3", "--phones", "4", *only)
    injections = [each for run in report["runs"] for each in run["injections"]]
    assert sorted((each["kind"], each["restarted"], each["attribution"]) for each in injections) == [
        ("host dies", False, "not needed"),
        ("host reboot", False, "not needed"),
        ("rank killed", True, "correct"),
    ]
    assert [(run["state"], run["bitwise"], run["difference"]) for run in report["runs"]] == [
        ("done", True, 0.0) for _ in report["runs"]
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind", ["old holder returns", "holder excluded", "rejoin fails", "killed during resume", "slow first step"]
)
def test_a_fault_of_several_steps(provisioned_lab4: TestLab, kind: str) -> None:
    report = run_campaign(provisioned_lab4, "--faults", "1", "--phones", "4", "--seed", "3", "--only", kind)
    injections = [each for run in report["runs"] for each in run["injections"]]
    assert [(each["kind"], each["restarted"], each["attribution"]) for each in injections] == [(kind, True, "correct")]


def test_a_lab_with_too_few_phones_is_refused(provisioned_lab4: TestLab) -> None:
    refused = provisioned_lab4.clusterctl("chaos", "--phones", "4..5", check=False)
    assert refused.returncode == 2
    assert "the running lab has 4 phones, not 5" in refused.stderr


def test_an_inventory_of_real_phones_is_refused(tmp_path: Path) -> None:
    refused = TestLab(tmp_path).clusterctl("chaos", "-i", str(RACK), check=False)
    assert refused.returncode == 2
    assert "describes real phones" in refused.stderr
    assert not (tmp_path / "lab").exists()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_long_campaign_passes() -> None:
    with running_lab(6, 2) as lab:
        lab.clusterctl("provision")
        report = run_campaign(lab, "--seed", "1", "--faults", "32", "--phones", "4..6", "--minutes", "40")
    assert report["faults"] == 32
    assert not report["out_of_time"]
