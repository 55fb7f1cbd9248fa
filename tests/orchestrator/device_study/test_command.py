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
    TRAINING_LOW_PRIORITY,
    StudyRequest,
)
from phone_agent.contract.errors import ErrorCode
from phone_agent.device.isolated import IsolatedError
from phone_agent.device_study import cases
from phone_agent.device_study.cases import DEFAULT
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


def test_models_and_sweeps_are_timed(here: dict[str, Any]) -> None:
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


def test_operations_are_timed_forward_and_backward(here: dict[str, Any]) -> None:
    rows = of(here, "operation")
    assert {row["network"] for row in rows} == {"conv 64 x 4", "mobilenet_reduced"}
    assert {row["direction"] for row in rows} >= {"forward", "backward"}
    assert {"conv_forward", "conv_backward_weights", "depthwise_forward"} <= {row["kind"] for row in rows}


def test_idle_and_busy_loads_differ(here: dict[str, Any]) -> None:
    rest, inference, training = of(here, "load")
    assert [each["activity"] for each in (rest, inference, training)] == ["rest", "inference", "training"]
    assert rest["cpu_share"] < training["cpu_share"]
    for each in (rest, inference, training):
        assert (each["power_w"] is None) == ("battery" in each["why"])


def test_interference_is_measured(here: dict[str, Any]) -> None:
    interference = {run["situation"]: run for run in of(here, "interference")}
    assert list(interference) == [FOREGROUND_ALONE, TRAINING_ALONE, TRAINING_LOW_PRIORITY, EQUAL_PRIORITY]
    assert interference[FOREGROUND_ALONE]["training_s"] is None
    assert interference[TRAINING_ALONE]["foreground_rate"] is None
    assert interference[TRAINING_LOW_PRIORITY]["foreground_rate"] > 0
    assert interference[EQUAL_PRIORITY]["training_s"] > 0


def test_thermal_run_duration(here: dict[str, Any]) -> None:
    samples = of(here, "sample")
    assert len(samples) >= 2
    assert samples[-1]["at_s"] >= 1.2 * 0.99


def test_measurements_are_compared_with_published_figures(here: dict[str, Any]) -> None:
    found = {each["figure"]["what"]: each["measured"] for each in here["published_comparison"]}
    assert 0 < found["convolution gradients (backward pass)"] <= 100
    assert found["convolutions only, training: GPU against CPU"] is None


def test_the_report_describes_this_run(here: dict[str, Any]) -> None:
    assert "this computer" in here["page"]
    assert "Where the time of a step goes" in here["page"]


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ({"part": ["gossip"]}, "models, sweep"),
        ({"model": ["resnet50"]}, "mentee"),
        ({"widths": "64..512"}, "is not a list of numbers"),
        ({"widths": "1-1000"}, "1 to 64 are allowed"),
        ({"depths": "0"}, "depth 0"),
        ({"batch": 0}, "batch 0"),
        ({"backend": ["cuda"]}, "cpu, opencl"),
        ({"memory": "lots"}, "2.8GB"),
        ({"thermal": 1000.0}, "minutes"),
        ({"threads": 65}, "1 to 64"),
        ({"limit": "p1"}, "--limit selects phones"),
        ({"report": Path("/nowhere/at/all.html")}, "/nowhere/at is not a writable directory"),
    ],
)
def test_invalid_flags_are_rejected(flags: dict[str, Any], printed: str) -> None:
    with pytest.raises(UsageError, match=printed):
        bench_device.device(here=True, **flags)


def test_errors_suggest_a_valid_value() -> None:
    ended = clusterctl("bench", "device", "--here", "--widths", "64..512")
    assert ended.returncode == 2, ended.stderr
    assert "write it like 64,512 or 1-8" in ended.stderr


def test_out_of_memory_is_predicted() -> None:
    ended = clusterctl("bench", "device", "--here", "--part", "sweep", *SMALL, "--memory", "66MB", "--json")
    assert ended.returncode == 0, ended.stderr
    cases = of(json.loads(ended.stdout)["devices"][0], "case")
    assert len(cases) == 3
    for case in cases:
        assert case["why"].startswith("predicted to run out of memory: needs ")
        assert case["training_s"] is None


def test_an_unavailable_backend_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
def test_a_phone_without_the_agent_suggests_provision(lab4: TestLab) -> None:
    ended = lab4.clusterctl("bench", "device", "--part", "sweep", *SMALL, "--limit", "p1-01", check=False)
    assert ended.returncode == 1, ended.stderr
    assert "clusterctl provision --limit p1-01" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_requests_are_parsed_without_numpy() -> None:
    """Its BLAS asks once for its threads: after the cores are chosen."""
    code = "import sys; import phone_agent.contract.device_study; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_backend_without_results_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> None:
        raise IsolatedError("no answer within 90 s", code=ErrorCode.TIMED_OUT)

    monkeypatch.setattr(cases, "run_isolated", hang)
    request = StudyRequest(
        parts=("sweep",), families=("fc",), widths=(8,), depths=(1, 2, 3, 4, 5), backends=("cpu",), batch=1
    )
    found = [case.why for case in cases.sweep_cases(request, cases.StudyContext(1, None, {}, DEFAULT))]
    assert found == ["no answer within 90 s"] * 3 + ["skipped: cpu gave no result for 3 other networks"] * 2
