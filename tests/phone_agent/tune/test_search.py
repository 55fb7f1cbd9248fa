"""The search for the fastest device config: each part in a process with a time limit, and the choice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phone_agent.backends.opencl import driver_path
from phone_agent.backends.opencl.driver_path import DeviceProbe
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import ComputeSpec, DeviceConfig, RunSpec
from phone_agent.contract.tune import TuneRequest, read_tune_request
from phone_agent.train import device_config
from phone_agent.tune import search, trials
from tests.orchestrator.launch.samples import spec

REQUEST = TuneRequest("lenet", 2, 2.0)


def row(part: str, images_per_s: float) -> dict[str, Any]:
    return {"part": part, "what": part, "device_config": {"backend": part, "tiles": {}}, "images_per_s": images_per_s}


@pytest.mark.parametrize(
    ("cpu", "opencl", "hybrid", "chosen"),
    [(10, 5, 10.5, "cpu"), (10, 20, 21, "opencl"), (10, 20, 29, "hybrid"), (10, 10.5, 11.2, "hybrid")],
)
def test_config_that_takes_more_of_the_phone_must_be_faster(
    cpu: float, opencl: float, hybrid: float, chosen: str
) -> None:
    speeds = {"cpu": cpu, "opencl": opencl, "hybrid": hybrid}

    def measure(part: str, _: TuneRequest) -> list[dict[str, Any]]:
        return [row(part, speeds[part])] if part in speeds else []

    *_, best = search.search(REQUEST, measure)
    assert (best["part"], best["device_config"]["backend"]) == ("best", chosen)


def test_hybrid_is_not_measured_without_a_gpu() -> None:
    measured: list[str] = []

    def measure(part: str, _: TuneRequest) -> list[dict[str, Any]]:
        measured.append(part)
        return [row("cpu", 5.0)] if part == "cpu" else [{"part": part, "what": part, "error": "no device"}]

    *_, best = search.search(REQUEST, measure)
    assert measured == ["cpu", "opencl", "dense"]
    assert best["device_config"]["backend"] == "cpu"


def test_cpu_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "GRACE_S", 600.0)  # the core may have to be compiled first, on a busy computer
    rows = list(search.measure_isolated("cpu", REQUEST))
    assert rows
    measured = [each for each in rows if each.get("images_per_s", 0) > 0]
    assert [each["device_config"]["backend"] for each in measured] == ["cpu"] * len(rows), rows


@pytest.mark.parametrize(
    ("script", "word"),
    [("import os; os.kill(os.getpid(), 11)", "signal 11"), ("import time; time.sleep(60)", "no answer within")],
)
def test_crashing_or_hanging_driver_affects_only_its_part(
    script: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "GRACE_S", -1.5)
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **k: popen([sys.executable, "-c", script], **k))
    [row] = list(search.measure_isolated("opencl", REQUEST))
    assert word in row["error"]


def test_invalid_requests_are_rejected() -> None:
    for text in ("", "[]", '{"model": "lenet"}', json.dumps({"model": "lenet", "batch": 0, "seconds": 1})):
        with pytest.raises(AgentError):
            read_tune_request(text)
    with pytest.raises(AgentError, match="unknown part"):
        list(trials.measure("gpu", REQUEST))


FOUND, NONE = DeviceProbe({"device": "Adreno"}), DeviceProbe(None, "no device here")
NEITHER = (
    "no device here; with LD_LIBRARY_PATH=/vendor/lib64:/p/lib: {}."
    " If `clinfo -l` lists no device with that either, use --backend cpu"
)


def mock_probes(
    monkeypatch: pytest.MonkeyPatch, default: DeviceProbe, vendor_first: DeviceProbe, *, exists: bool = True
) -> list[Any]:
    """Returns the library paths of each re-exec."""
    started: list[Any] = []

    class Vendor:
        parent = "/vendor/lib64"

        @staticmethod
        def exists() -> bool:
            return exists

    monkeypatch.setattr(driver_path, "VENDOR_DRIVER", Vendor)
    monkeypatch.setattr(driver_path, "load_vendor_driver", lambda: "")
    monkeypatch.setenv("PREFIX", "/p")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(
        driver_path, "probe_in_subprocess", lambda env: vendor_first if "LD_LIBRARY_PATH" in env else default
    )
    monkeypatch.setattr(os, "execve", lambda *call: started.append(call[2]["LD_LIBRARY_PATH"]))
    return started


def test_vendor_libraries_come_first_only_if_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    started = mock_probes(monkeypatch, FOUND, NONE)
    assert (driver_path.prepare_driver(), started) == ("", [])
    started = mock_probes(monkeypatch, NONE, FOUND)
    driver_path.prepare_driver()
    assert started == ["/vendor/lib64:/p/lib"]
    started = mock_probes(monkeypatch, NONE, NONE)
    assert (driver_path.prepare_driver(), started) == (NEITHER.format("same result"), [])
    assert driver_path.probe_device().why == NEITHER.format("same result")
    mock_probes(monkeypatch, NONE, DeviceProbe(None, "signal 11"))
    assert driver_path.prepare_driver() == NEITHER.format("signal 11")
    started = mock_probes(monkeypatch, NONE, FOUND, exists=False)
    assert (driver_path.prepare_driver(), started) == ("no device here", [])


def test_probe_of_a_hanging_or_crashing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def probe(script: str) -> DeviceProbe:
        monkeypatch.setattr(subprocess, "run", lambda _, **k: run([sys.executable, "-c", script], **k))
        return driver_path.probe_in_subprocess({}, timeout_s=2.0)

    assert "did not answer" in probe("import time; time.sleep(60)").why
    assert "signal 11" in probe("import os; os.kill(os.getpid(), 11)").why
    assert "probe failed: oh" in probe("import sys; sys.exit('oh')").why
    assert probe("""print('{"device": {"device": "x"}}')""").found


def test_without_a_gpu_the_cpu_is_used_and_the_reason_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(driver_path, "prepare_driver", lambda: "no device here")
    run: RunSpec = spec(2)
    assert device_config.fall_back_to_cpu(run, "p1-01", tmp_path) == run
    settled = device_config.fall_back_to_cpu(replace(run, compute=ComputeSpec("opencl")), "p1-01", tmp_path)
    fallback = DeviceConfig("cpu", fallback_reason="no device here", fallback_from="opencl")
    assert device_config.config_for(settled, "p1-01") == fallback
    assert device_config.config_for(settled, "p1-02").backend == "opencl"
