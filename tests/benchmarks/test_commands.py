"""`clusterctl bench compute` and `clusterctl bench kernels` on this computer, without a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phone_agent.bench import cases
from phone_agent.core.ops import Kind

ROOT = Path(__file__).parents[2]


def clusterctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.cli.app", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


def run_json(*arguments: str) -> dict[str, Any]:
    completed = clusterctl(*arguments, "--json")
    assert completed.returncode == 0, completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    return document


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_compute_reports_a_training_step(backend: str) -> None:
    flags = ("--model", "lenet", "--batch", "4", "--threads", "2", "--steps", "2", "--backend", backend)
    report = run_json("bench", "compute", *flags)
    assert (report["model"], report["batch"], report["threads"], report["backend"]) == ("lenet", 4, 2, backend)
    assert 0 < report["best_step_s"] <= report["step_s"] < 60
    assert report["images_per_s"] == pytest.approx(4 / report["step_s"])
    assert 10 < report["peak_rss_mb"] < 1000
    assert 0 < report["loss"] < 10


def test_compute_on_the_core_reports_a_breakdown() -> None:
    report = run_json("bench", "compute", "--model", "lenet", "--batch", "2", "--threads", "1", "--isa", "sse2")
    assert report["isa"] == "sse2"
    assert sum(part["fraction"] for part in report["breakdown"]) == pytest.approx(1)
    assert {"conv_forward", "conv_backward_weights"} <= {part["kind"] for part in report["breakdown"]}
    assert 0 < report["peak_fraction"] < 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "resnet5O"], "did you mean resnet50?"),
        (["--threads", "0"], "between 1 and 64"),
        (["--threads", "1000"], "between 1 and 64"),
        (["--batch", "0"], "batch size 0"),
        (["--batch", "60000"], "needs"),
        (["--memory", "60MB"], "needs"),
        (["--memory", "300MB", "--batch", "500"], "which fits, or a larger --memory"),
        (["--memory", "lots"], "2.8GB"),
        (["--steps", "0"], "at least 1"),
        (["--isa", "sse9"], "avx512"),
        (["--backend", "gpu"], "reference"),
    ],
)
def test_compute_rejects_invalid_arguments(arguments: list[str], message: str) -> None:
    model = [] if "--model" in arguments else ["--model", "mobilenet_v1"]
    completed = clusterctl("bench", "compute", *model, *arguments)
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def test_kernels_measures_every_kind_of_the_core() -> None:
    report = run_json("bench", "kernels", "--seconds", "0", "--threads", "2")
    assert report["machine"]["peak_gflops"] > 1
    assert dict.fromkeys(kernel["name"] for kernel in report["kernels"]) == dict.fromkeys(cases.names())
    names = " ".join(cases.names())
    assert {"conv_backward_weights winograd4", "conv_forward grouped", "conv_forward dilated"} <= set(cases.names())
    for kind in set(Kind) - {Kind.FMA_PEAK, Kind.BATCH_NORM_FOLD}:  # the reference itself; negligible work
        assert kind.name.lower() in names
    for kernel in report["kernels"]:
        assert kernel["seconds"] > 0
        assert kernel["gbs"] > 0
        assert kernel["gflops"] is None or 0 < kernel["gflops"] < 10 * report["machine"]["peak_gflops"]


def test_kernels_prints_a_table() -> None:
    completed = clusterctl("bench", "kernels", "--seconds", "0", "--threads", "1", "--only", "depthwise")
    assert completed.returncode == 0, completed.stderr
    assert "GFLOP/s" in completed.stdout
    assert "depthwise" in completed.stdout
    assert "sgd" not in completed.stdout


def test_unselected_kernel_cases_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = cases.convolution

    def recording(*arguments: Any) -> cases.Case:
        made.append(arguments[-1])
        return original(*arguments)

    monkeypatch.setattr(cases, "convolution", recording)
    monkeypatch.setattr(cases, "_TOGETHER", ())
    assert len(list(cases.all_cases(1, "depthwise_forward"))) == len(made) == 3


def test_kernels_rejects_an_unknown_name() -> None:
    completed = clusterctl("bench", "kernels", "--seconds", "0", "--threads", "1", "--only", "depthwide")
    assert completed.returncode == 2
    assert "no kernel name contains 'depthwide'; choose from: conv_forward" in " ".join(completed.stderr.split())


@pytest.mark.parametrize("arguments", [["--threads", "0"], ["--threads", "1000"], ["--isa", "sse9"]])
def test_kernels_rejects_invalid_arguments(arguments: list[str]) -> None:
    completed = clusterctl("bench", "kernels", *arguments)
    assert completed.returncode == 2
    assert "Traceback" not in completed.stderr
