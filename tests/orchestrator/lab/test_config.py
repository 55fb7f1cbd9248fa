from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.lab.config import MAX_PHONES_PER_SWITCH, LabConfig, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1gbit", 1_000_000_000), ("100mbit", 100_000_000), ("2.5Gbit", 2_500_000_000), ("64000kbit", 64_000_000)],
)
def test_rates_are_parsed_as_by_tc(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize(
    "text", ["", "fast", "1", "1gb", "-1gbit", "0mbit", "1kbit", "101gbit", "1gbit; reboot", "1e3mbit"]
)
def test_invalid_rates_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--uplink"):
        parse_rate(text, "--uplink")


@pytest.mark.parametrize("text", ["", "1", "1t", "1m", "0g", "lots"])
def test_invalid_disk_sizes_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--disk"):
        parse_size(text)


def test_the_rack_of_the_paper() -> None:
    assert LabConfig(138, 3).phones_per_switch() == [46, 46, 46]
    assert LabConfig(4, 2).phones_per_switch() == [2, 2]


@given(st.integers(1, 16), st.integers(1, 3200))
def test_phones_are_spread_evenly_and_in_order(switches: int, phones: int) -> None:
    counts = LabConfig(phones, switches).phones_per_switch()
    assert sum(counts) == phones
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "config",
    [
        LabConfig(0),
        LabConfig(-4),
        LabConfig(MAX_PHONES_PER_SWITCH + 1),
        LabConfig(2, 3),
        LabConfig(4, 0),
        LabConfig(100, 17),
        LabConfig(4, rate="slow"),
        LabConfig(4, uplink="slow"),
        LabConfig(4, disk="none"),
    ],
)
def test_invalid_configs_are_rejected(config: LabConfig) -> None:
    with pytest.raises(UsageError):
        config.validate()


def test_the_largest_config_is_accepted() -> None:
    largest = MAX_PHONES_PER_SWITCH * 16
    LabConfig(largest, 16).validate()
    with pytest.raises(UsageError):
        LabConfig(largest + 1, 16).validate()
