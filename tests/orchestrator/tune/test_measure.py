"""Tuning rows are untrusted: invalid ones are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import agent
from orchestrator.tune.measure import _check_row, _device_config
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
    {"fallback_reason": "no"},
    {"unknown": 1},
]


def test_measurement_and_error_rows_are_accepted() -> None:
    for row in ({"part": "cpu", "step_s": 0.1, "images_per_s": 40.0}, {"part": "opencl", "error": "no device"}):
        assert _check_row(row) == row


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
    with pytest.raises(PhoneError, match="invalid"):
        _check_row(agent.parse_row(line))


def test_invalid_device_configs_are_rejected() -> None:
    assert _device_config(CONFIG) == DeviceConfig("hybrid", 4, gpu_fraction=0.5, tiles={"width": 4})
    for wrong in WRONG:
        with pytest.raises(PhoneError, match="invalid"):
            _device_config({**CONFIG, **wrong})
    with pytest.raises(PhoneError):
        _device_config(None)
