"""The timeline of a run on a lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.labs import TestLab

pytestmark = pytest.mark.lab

FLAGS = (
    "--model",
    "mobilenet_reduced",
    "--data",
    "synthetic",
    "--batch",
    "4",
    "--steps",
    "6",
    "--bucket-size",
    "200KB",
)


def test_every_phone_reports_its_spans(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    lab, trace = provisioned_lab4, tmp_path / "trace.json"
    summary = json.loads(lab.clusterctl("launch", *FLAGS, "--json").stdout)
    assert summary["choice"]["bucket_bytes"] == 200_000
    assert summary["choice"]["predicted_s"] > summary["choice"]["limit_s"] > 0
    assert summary["line_rate_fraction"] > 0
    assert 0 <= summary["exposed_comm_fraction"] < 1
    ranks = json.loads(lab.clusterctl("timeline", "--out", str(trace), "--json").stdout)["ranks"]
    assert [rank["phone"] for rank in ranks] == summary["phones"]
    assert [rank["steps"] for rank in ranks] == [3] * 4
    assert all(0 <= rank["exposed"] < 1 for rank in ranks)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}
    kinds = {event["name"] for event in events}
    assert {"data", "forward", "backward", "reduce", "update", "exchange", "receive", "add"} <= kinds
    shown = lab.clusterctl("timeline", "--out", str(trace)).stdout
    assert "exposed" in shown
    assert "p2-02" in shown
