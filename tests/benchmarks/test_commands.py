"""`clusterctl bench compute` and `bench kernels`, on this machine, without a lab."""

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


def answered(*arguments: str) -> dict[str, Any]:
    ended = clusterctl(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_compute_reports_a_training_step(backend: str) -> None:
    asked = ("--model", "lenet", "--batch", "4", "--threads", "2", "--steps", "2", "--backend", backend)
    told = answered("bench", "compute", *asked)
    assert (told["model"], told["batch"], told["threads"], told["backend"]) == ("lenet", 4, 2, backend)
    assert 0 < told["best_step_s"] <= told["step_s"] < 60
    assert told["images_per_s"] == pytest.approx(4 / told["step_s"])
    assert 10 < told["peak_rss_mb"] < 1000
    assert 0 < told["loss"] < 10


def test_compute_on_the_core_says_where_the_time_goes() -> None:
    told = answered("bench", "compute", "--model", "lenet", "--batch", "2", "--threads", "1", "--isa", "sse2")
    assert told["isa"] == "sse2"
    assert sum(share["share"] for share in told["breakdown"]) == pytest.approx(1)
    assert {"conv_forward", "conv_backward_weights"} <= {share["kind"] for share in told["breakdown"]}
    assert 0 < told["peak_share"] < 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "resnet5O"], "did you mean resnet50?"),
        (["--threads", "0"], "1 to 64"),
        (["--threads", "1000"], "1 to 64"),
        (["--batch", "0"], "a batch of 0"),
        (["--batch", "60000"], "needs"),
        (["--memory", "60MB"], "needs"),
        (["--memory", "300MB", "--batch", "500"], "which fits, or a larger --memory"),
        (["--memory", "lots"], "2.8GB"),
        (["--steps", "0"], "at least 1"),
        (["--isa", "sse9"], "avx512"),
        (["--backend", "gpu"], "reference"),
    ],
)
def test_compute_refuses_clearly(arguments: list[str], said: str) -> None:
    model = [] if "--model" in arguments else ["--model", "mobilenet_v1"]
    ended = clusterctl("bench", "compute", *model, *arguments)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_kernels_measures_every_kind_the_core_has() -> None:
    told = answered("bench", "kernels", "--seconds", "0", "--threads", "2")
    assert told["machine"]["peak_gflops"] > 1
    assert dict.fromkeys(kernel["name"] for kernel in told["kernels"]) == dict.fromkeys(cases.names())
    names = " ".join(cases.names())
    assert {"conv_backward_weights winograd4", "conv_forward grouped", "conv_forward dilated"} <= set(cases.names())
    for kind in set(Kind) - {Kind.FMA_PEAK, Kind.BATCH_NORM_FOLD}:  # the measure itself; a few numbers a layer
        assert kind.name.lower() in names
    for kernel in told["kernels"]:
        assert kernel["seconds"] > 0
        assert kernel["gbs"] > 0
        assert kernel["gflops"] is None or 0 < kernel["gflops"] < 10 * told["machine"]["peak_gflops"]


def test_kernels_in_words() -> None:
    ended = clusterctl("bench", "kernels", "--seconds", "0", "--threads", "1", "--only", "depthwise")
    assert ended.returncode == 0, ended.stderr
    assert "GFLOP/s" in ended.stdout
    assert "depthwise" in ended.stdout
    assert "sgd" not in ended.stdout


def test_what_was_not_asked_for_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    whole = cases.convolution

    def noted(*given: Any) -> cases.Case:
        made.append(given[-1])
        return whole(*given)

    monkeypatch.setattr(cases, "convolution", noted)
    monkeypatch.setattr(cases, "_TOGETHER", ())
    assert len(list(cases.all_cases(1, "depthwise_forward"))) == len(made) == 3


def test_kernels_that_are_not_there_are_told() -> None:
    ended = clusterctl("bench", "kernels", "--seconds", "0", "--threads", "1", "--only", "depthwide")
    assert ended.returncode == 2
    assert "no kernel has 'depthwide' in its name; there are: conv_forward" in " ".join(ended.stderr.split())


@pytest.mark.parametrize("arguments", [["--threads", "0"], ["--threads", "1000"], ["--isa", "sse9"]])
def test_kernels_refuses_clearly(arguments: list[str]) -> None:
    ended = clusterctl("bench", "kernels", *arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
