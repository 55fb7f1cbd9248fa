"""Chaos on a lab: a short seeded part of it every time, more of it slowly."""

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
SHORT = "151"  # the seed of one run in which the head's rank is killed, then whoever watches


def rage(lab: TestLab, *flags: str) -> dict[str, Any]:
    done = lab.clusterctl("chaos", "--json", *flags, check=False)
    assert done.returncode in {0, 1}, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["kept"], json.dumps(report, indent=1)
    assert done.returncode == 0
    return report


def test_a_short_chaos_changes_no_bit(provisioned_lab4: TestLab) -> None:
    report = rage(provisioned_lab4, "--seed", SHORT, "--faults", "2", "--phones", "4")
    (run,) = report["runs"]
    assert [(blow["kind"], blow["restarted"], blow["cause"]) for blow in run["blows"]] == [
        ("rank killed", True, "right"),
        ("host dies", False, "nothing to name"),
    ]
    assert (run["state"], run["to_the_bit"], run["difference"]) == ("done", True, 0.0)


def test_a_lab_of_fewer_phones_is_refused(provisioned_lab4: TestLab) -> None:
    refused = provisioned_lab4.clusterctl("chaos", "--phones", "4..5", check=False)
    assert refused.returncode == 2
    assert "the lab that is up has 4 phones, not 5" in refused.stderr


def test_real_phones_are_left_alone(tmp_path: Path) -> None:
    refused = TestLab(tmp_path).clusterctl("chaos", "-i", str(RACK), check=False)
    assert refused.returncode == 2
    assert "describes real phones, and chaos breaks phones: it is for labs only" in refused.stderr
    assert not (tmp_path / "lab").exists()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_kind_of_fault_is_survived() -> None:
    with running_lab(6, 2) as lab:
        lab.clusterctl("provision")
        report = rage(lab, "--seed", "1", "--faults", "32", "--phones", "4..6", "--minutes", "40")
    assert report["faults"] == 32
    assert not report["out_of_time"]
