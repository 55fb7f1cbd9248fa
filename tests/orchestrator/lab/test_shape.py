from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.lab.shape import MAX_PHONES_PER_SWITCH, Shape, bits_per_second, disk_bytes


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1gbit", 1_000_000_000), ("100mbit", 100_000_000), ("2.5Gbit", 2_500_000_000), ("64000kbit", 64_000_000)],
)
def test_rates_are_read_as_tc_reads_them(text: str, bits: int) -> None:
    assert bits_per_second(text) == bits


@pytest.mark.parametrize(
    "text", ["", "fast", "1", "1gb", "-1gbit", "0mbit", "1kbit", "101gbit", "1gbit; reboot", "1e3mbit"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--uplink"):
        bits_per_second(text, "--uplink")


@pytest.mark.parametrize("text", ["", "1", "1t", "1m", "0g", "lots"])
def test_what_is_no_disk_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--disk"):
        disk_bytes(text)


def test_the_papers_rack() -> None:
    assert Shape(138, 3).phones_per_switch() == [46, 46, 46]
    assert Shape(4, 2).phones_per_switch() == [2, 2]


@given(st.integers(1, 16), st.integers(1, 3200))
def test_phones_are_spread_evenly_and_in_order(switches: int, phones: int) -> None:
    counts = Shape(phones, switches).phones_per_switch()
    assert sum(counts) == phones
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "shape",
    [
        Shape(0),
        Shape(-4),
        Shape(MAX_PHONES_PER_SWITCH + 1),
        Shape(2, 3),
        Shape(4, 0),
        Shape(100, 17),
        Shape(4, rate="slow"),
        Shape(4, uplink="slow"),
        Shape(4, disk="none"),
    ],
)
def test_shapes_that_cannot_be_built_are_refused(shape: Shape) -> None:
    with pytest.raises(UsageError):
        shape.check()


def test_the_largest_shape_is_allowed() -> None:
    Shape(MAX_PHONES_PER_SWITCH * 16, 16).check()
