"""`clusterctl bench device`: on this computer, and on a virtual phone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import bench_device
from orchestrator.errors import UsageError
from phone_agent.contract.device_study import (
    EQUAL_PRIORITY,
    FOREGROUND_ALONE,
    TRAINING_ALONE,
    TRAINING_GIVES_WAY,
    StudyRequest,
)
from phone_agent.contract.errors import ErrorCode
from phone_agent.device.isolated import IsolatedError
from phone_agent.device_study import cases
from phone_agent.device_study.time_limits import USUAL
from tests.labs import CLUSTERCTL, TestLab

SMALL = ("--widths", "8", "--depths", "1", "--batch", "4", "--quick", "--backend", "cpu", "--threads", "1")


def clusterctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLUSTERCTL, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The whole study, as small as it can be; `page` is its report."""
    report = tmp_path_factory.mktemp("study") / "report.html"
    asked = ("--model", "mobilenet_reduced", "--thermal", "0.02", "--report", str(report), "--json")
    ended = clusterctl("bench", "device", "--here", *SMALL, *asked)
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return {**document["devices"][0], "page": report.read_text()}


def of(device: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in device["rows"] if row["row"] == kind]


def test_networks_and_sweeps_are_timed(here: dict[str, Any]) -> None:
    cases = of(here, "case")
    assert [case["family"] for case in cases] == ["model", "fc", "conv", "separable"]
    for case in cases:
        assert case["why"] == ""
        assert 1 <= case["batch"] <= 4
        assert case["training_s"] > 0
        assert case["inference_s"] > 0
        assert case["resident_bytes"] > 10**7
        assert case["planned_bytes"] > 4 * case["parameters"]
    assert cases[1]["parameters"] == 3072 * 8 + 8


def test_operations_are_timed_both_ways(here: dict[str, Any]) -> None:
    rows = of(here, "operation")
    assert {row["network"] for row in rows} == {"conv 64 x 4", "mobilenet_reduced"}
    assert {row["direction"] for row in rows} >= {"forward", "backward"}
    assert {"conv_forward", "conv_backward_weights", "depthwise_forward"} <= {row["kind"] for row in rows}


def test_rest_and_work_are_told_apart(here: dict[str, Any]) -> None:
    rest, inference, training = of(here, "load")
    assert [each["activity"] for each in (rest, inference, training)] == ["rest", "inference", "training"]
    assert rest["cpu_share"] < training["cpu_share"]
    for each in (rest, inference, training):
        assert (each["power_w"] is None) == ("battery" in each["why"])


def test_training_and_an_application_slow_each_other_down(here: dict[str, Any]) -> None:
    contests = {contest["situation"]: contest for contest in of(here, "contest")}
    assert list(contests) == [FOREGROUND_ALONE, TRAINING_ALONE, TRAINING_GIVES_WAY, EQUAL_PRIORITY]
    assert contests[FOREGROUND_ALONE]["training_s"] is None
    assert contests[TRAINING_ALONE]["foreground_rate"] is None
    assert contests[TRAINING_GIVES_WAY]["foreground_rate"] > 0
    assert contests[EQUAL_PRIORITY]["training_s"] > 0


def test_a_thermal_run_goes_on_for_its_time(here: dict[str, Any]) -> None:
    samples = of(here, "sample")
    assert len(samples) >= 2
    assert samples[-1]["at_s"] >= 1.2 * 0.99


def test_figures_stand_beside_what_was_published(here: dict[str, Any]) -> None:
    found = {each["figure"]["what"]: each["measured"] for each in here["beside_published"]}
    assert 0 < found["convolution gradients, of the backward path"] <= 100
    assert found["convolutions only, training: GPU against CPU"] is None


def test_the_report_is_of_this_run(here: dict[str, Any]) -> None:
    assert "this computer" in here["page"]
    assert "Where the time of a step goes" in here["page"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"part": ["gossip"]}, "models, sweep"),
        ({"model": ["resnet50"]}, "mentee"),
        ({"widths": "64..512"}, "is not a list of numbers"),
        ({"widths": "1-1000"}, "1 to 64 are allowed"),
        ({"depths": "0"}, "a depth of 0"),
        ({"batch": 0}, "a batch of 0"),
        ({"backend": ["cuda"]}, "cpu, opencl"),
        ({"memory": "lots"}, "2.8GB"),
        ({"thermal": 1000.0}, "minutes"),
        ({"threads": 65}, "1 to 64"),
        ({"limit": "p1"}, "--limit selects phones"),
        ({"report": Path("/nowhere/at/all.html")}, "/nowhere/at is not a writable folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bench_device.device(here=True, **flags)


def test_a_refusal_ends_with_what_to_write_instead() -> None:
    ended = clusterctl("bench", "device", "--here", "--widths", "64..512")
    assert ended.returncode == 2, ended.stderr
    assert "write it like 64,512 or 1-8" in ended.stderr


def test_what_does_not_fit_is_foreseen() -> None:
    ended = clusterctl("bench", "device", "--here", "--part", "sweep", *SMALL, "--memory", "66MB", "--json")
    assert ended.returncode == 0, ended.stderr
    cases = of(json.loads(ended.stdout)["devices"][0], "case")
    assert len(cases) == 3
    for case in cases:
        assert case["why"].startswith("out of memory, predicted: needs ")
        assert case["training_s"] is None


def test_a_backend_that_is_missing_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No driver is registered here."""
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    flags = ("--part", "models", "--model", "mobilenet_reduced", "--batch", "1", "--quick", "--backend", "opencl")
    ended = clusterctl("bench", "device", "--here", *flags, "--json")
    assert ended.returncode == 0, ended.stderr
    (case,) = of(json.loads(ended.stdout)["devices"][0], "case")
    assert case["why"]
    assert case["training_s"] is None


@pytest.mark.lab
def test_a_phone_is_studied_over_ssh(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    asked = ("--part", "sweep", *SMALL, "--limit", "p1-02,p2-01", "--report", str(report), "--json")
    devices = json.loads(provisioned_lab4.clusterctl("bench", "device", *asked).stdout)["devices"]
    assert [device["name"] for device in devices] == ["p1-02", "p2-01"]
    for device in devices:
        assert device["virtual"] is True
        assert device["error"] is None
        assert of(device, "facts")[0]["threads"] == 1
        assert [case["family"] for case in of(device, "case") if case["training_s"]] == ["fc", "conv", "separable"]
    assert "A virtual phone" in report.read_text()


@pytest.mark.lab
def test_a_phone_without_the_agent_says_what_to_do(lab4: TestLab) -> None:
    ended = lab4.clusterctl("bench", "device", "--part", "sweep", *SMALL, "--limit", "p1-01", check=False)
    assert ended.returncode == 1, ended.stderr
    assert "clusterctl provision --limit p1-01" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_a_request_is_read_before_numpy_is_there() -> None:
    """Its BLAS asks once for its threads: after the cores are chosen."""
    code = "import sys; import phone_agent.contract.device_study; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_backend_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> None:
        raise IsolatedError("no answer within 90 s", code=ErrorCode.TIMED_OUT)

    monkeypatch.setattr(cases, "run_isolated", hang)
    request = StudyRequest(
        parts=("sweep",), families=("fc",), widths=(8,), depths=(1, 2, 3, 4, 5), backends=("cpu",), batch=1
    )
    found = [case.why for case in cases.sweep_cases(request, cases.Means(1, None, {}, USUAL))]
    assert found == ["no answer within 90 s"] * 3 + ["not tried: cpu gave no answer to 3 others"] * 2
