"""OpenCL in virtual phones: real kernels, by PoCL behind the vendor's library; and what happens where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from orchestrator.tune.store import TuneStore
from tests.labs import TestLab, namespaces_missing

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(namespaces_missing()), reason=f"no phones with a /vendor: {namespaces_missing()}"),
]

PAIR = ("--limit", "p1-01,p1-02")
RUN = ("launch", *PAIR, "--data", "synthetic", "--steps", "4", "--batch", "3", "--load-balancing", "off")


def answer(lab: TestLab, *arguments: str) -> Any:
    return json.loads(lab.clusterctl(*arguments, "--json").stdout)


@contextmanager
def setting(lab: TestLab, phone: str, broken: str, healed: str) -> Iterator[None]:
    lab.clusterctl("lab", "set", phone, broken)
    try:
        yield
    finally:
        lab.clusterctl("lab", "set", phone, healed)


@pytest.mark.parametrize("model", ["lenet", pytest.param("mobilenet_reduced", marks=pytest.mark.slow)])
def test_opencl_training_matches_the_cpu(model: str, provisioned_lab4: TestLab) -> None:
    runs = {name: answer(provisioned_lab4, *RUN, "--model", model, "--backend", name) for name in ("cpu", "opencl")}
    assert {name: run["backend"] for name, run in runs.items()} == {"cpu": "cpu", "opencl": "opencl"}
    assert not runs["opencl"]["warnings"]
    np.testing.assert_allclose(runs["opencl"]["losses"], runs["cpu"]["losses"], rtol=2e-4)


def test_a_missing_gpu_is_reported_before_launch(provisioned_lab4: TestLab) -> None:
    with setting(provisioned_lab4, "p1-02", "opencl=no-platform", "opencl=ok"):
        done = provisioned_lab4.clusterctl(*RUN, "--backend", "opencl", check=False)
    assert done.returncode == 1
    assert "p1-02 (sw1:2)" in done.stderr
    assert "p1-01 (sw1:1)" not in done.stderr
    assert "--limit sw1:1" in done.stderr


@pytest.mark.slow
def test_tuning_results_apply_until_the_driver_changes(
    provisioned_lab4: TestLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(provisioned_lab4.state))
    [kind] = answer(provisioned_lab4, "tune", *PAIR, "--model", "lenet", "--minutes", "0.4", "--batch", "4")["kinds"]
    try:
        assert kind["phones"] == ["p1-01", "p1-02"]
        parts = {row["part"] for row in kind["measured"] if "step_s" in row}
        assert parts == {"cpu", "opencl", "hybrid", "dense"}
        reported = provisioned_lab4.clusterctl(*RUN)
        assert ": using settings tuned on" in reported.stderr
        with setting(provisioned_lab4, "p1-02", "opencl=no-platform", "opencl=ok"):
            reported = provisioned_lab4.clusterctl(*RUN)
        assert "the driver changed" in " ".join(reported.stderr.split())
    finally:
        (provisioned_lab4.state / "tuned.json").unlink()
    assert TuneStore().read() == {}
