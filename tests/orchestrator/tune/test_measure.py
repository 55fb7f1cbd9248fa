"""Tuning rows are untrusted: invalid ones are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.tune.measure import parse_row
from phone_agent.contract.decode import DecodeError, decode
from phone_agent.contract.replies import TuneRow
from phone_agent.contract.schema import DeviceConfig

CONFIG: dict[str, Any] = {
    "backend": "hybrid",
    "threads": 4,
    "little_cores": False,
    "gpu_fraction": 0.5,
    "tiles": {"width": 4},
}

WRONG: list[dict[str, Any]] = [
    {"backend": "rm -rf"},
    {"threads": 1e9},
    {"threads": -1},
    {"gpu_fraction": 2.0},
    {"tiles": {"width": "4"}},
    {"tiles": []},
]


def test_measurement_and_error_rows_are_accepted() -> None:
    for row in ({"part": "cpu", "step_s": 0.1, "images_per_s": 40.0}, {"part": "opencl", "error": "no device"}):
        assert parse_row(json.dumps(row).encode()) == TuneRow(**row)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"part": 1}',
        '{"part": "cpu"}',
        '{"part": "cpu", "step_s": "fast"}',
        '{"part": "cpu", "step_s": -1}',
        '{"part": "cpu", "step_s": Infinity}',
        "[" * 100_000,
    ],
)
def test_invalid_rows_are_rejected(line: str) -> None:
    with pytest.raises(DecodeError):
        parse_row(line.encode())


def test_invalid_device_configs_are_rejected() -> None:
    assert decode(DeviceConfig, CONFIG) == DeviceConfig("hybrid", 4, gpu_fraction=0.5, tiles={"width": 4})
    for wrong in WRONG:
        with pytest.raises(DecodeError, match=next(iter(wrong))):
            decode(DeviceConfig, {**CONFIG, **wrong})
    with pytest.raises(DecodeError):
        decode(DeviceConfig, None)
