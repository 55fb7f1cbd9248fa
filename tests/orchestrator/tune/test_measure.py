"""What a phone says of its search may be anything: only what makes sense is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.tune.measure import _device_config, _row
from phone_agent.contract.schema import DeviceConfig

WAY: dict[str, Any] = {
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


def test_a_row_of_figures_or_of_an_error_is_taken() -> None:
    for row in ({"part": "cpu", "step_s": 0.1, "images_per_s": 40.0}, {"part": "opencl", "error": "no device"}):
        assert _row(json.dumps(row)) == row


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
def test_other_words_are_refused(line: str) -> None:
    with pytest.raises(PhoneError, match="no sense"):
        _row(line)


def test_a_way_is_one_that_a_person_could_ask_for() -> None:
    assert _device_config(WAY) == DeviceConfig("hybrid", 4, gpu_fraction=0.5, tiles={"width": 4})
    for wrong in WRONG:
        with pytest.raises(PhoneError, match="no sense"):
            _device_config({**WAY, **wrong})
    with pytest.raises(PhoneError):
        _device_config(None)
