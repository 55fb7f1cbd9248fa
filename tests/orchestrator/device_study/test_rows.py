"""What travels between a device and whoever studies it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from phone_agent.contract.device_study import Row, StudyError, StudyRequest, document, read_row, read_study_request
from tests.orchestrator.device_study.samples import rows


@pytest.mark.parametrize("row", {type(row): row for row in rows()}.values(), ids=lambda row: type(row).__name__)
def test_rows_arrive_as_they_were(row: Row) -> None:
    assert read_row(json.loads(json.dumps(document(row)))) == row


def test_requests_arrive_as_they_were() -> None:
    request = StudyRequest(parts=("sweep",), widths=(8,), memory_bytes=10**9, quick=True)
    assert read_study_request(json.dumps(asdict(request))) == request


@pytest.mark.parametrize("said", [None, [], 3, {}, {"row": "gossip"}, {"row": ["case"]} | {"row": "x"}])
def test_what_is_no_row_is_passed_over(said: Any) -> None:
    assert read_row(said) is None


@pytest.mark.parametrize(
    "change",
    [{"seconds": "long"}, {"seconds": float("nan")}, {"seconds": None}, {"activity": 3}, {"surprise": 1}],
)
def test_a_row_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    load = next(document(row) for row in rows() if type(row).__name__ == "Load")
    with pytest.raises(StudyError):
        read_row({**load, **change})


def test_a_row_with_less_than_it_needs_is_refused() -> None:
    with pytest.raises(StudyError, match="missing"):
        read_row({"row": "contest", "situation": "alone"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parts": ["gossip"]}, "models, sweep"),
        ({"parts": []}, "nothing to study"),
        ({"widths": [0]}, "a width of 0"),
        ({"depths": [65]}, "a depth of 65"),
        ({"batch": 0}, "a batch of 0"),
        ({"backends": ["gpu"]}, "cpu, opencl"),
        ({"threads": 1000}, "1000 threads"),
        ({"thermal_minutes": 1e9}, "minutes"),
        ({"batch": "128"}, "makes no sense"),
    ],
)
def test_requests_that_cannot_be_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        read_study_request(json.dumps(change))
