"""Request and result rows: round trips and validation."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from phone_agent.contract.decode import DecodeError
from phone_agent.contract.device_study import Row, StudyRequest, document, parse_row, read_study_request
from phone_agent.contract.errors import BadRequestError
from tests.orchestrator.device_study.samples import rows


@pytest.mark.parametrize("row", {type(row): row for row in rows()}.values(), ids=lambda row: type(row).__name__)
def test_rows_round_trip(row: Row) -> None:
    assert parse_row(json.dumps(document(row))) == row


def test_requests_round_trip() -> None:
    request = StudyRequest(parts=("sweep",), widths=(8,), memory_bytes=10**9, quick=True)
    assert read_study_request(json.dumps(asdict(request))) == request


@pytest.mark.parametrize("data", [None, [], 3, {}, {"row": "gossip"}, {"row": ["case"]} | {"row": "x"}])
def test_unknown_rows_are_rejected(data: Any) -> None:
    with pytest.raises(DecodeError):
        parse_row(json.dumps(data))


@pytest.mark.parametrize(
    "change",
    [{"seconds": "long"}, {"seconds": float("nan")}, {"seconds": None}, {"activity": 3}, {"seconds": 1.7e308}],
)
def test_invalid_rows_are_rejected(change: dict[str, Any]) -> None:
    load = next(document(row) for row in rows() if type(row).__name__ == "Load")
    with pytest.raises(DecodeError):
        parse_row(json.dumps({**load, **change}))


def test_incomplete_rows_are_rejected() -> None:
    with pytest.raises(DecodeError, match="network: missing"):
        parse_row('{"row": "interference", "situation": "alone"}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": ["gossip"]}, "models, sweep"),
        ({"parts": []}, "nothing to study"),
        ({"widths": [0]}, "width 0"),
        ({"depths": [65]}, "depth 65"),
        ({"batch": 0}, "batch 0"),
        ({"backends": ["gpu"]}, "cpu, opencl"),
        ({"threads": 1000}, "1000 threads"),
        ({"thermal_minutes": 1e9}, "minutes"),
        ({"batch": "128"}, "batch: expected an integer"),
        ({"surprise": 1}, "unknown field surprise"),
    ],
)
def test_invalid_requests_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        read_study_request(json.dumps(change))
