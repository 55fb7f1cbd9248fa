from __future__ import annotations

import pytest

from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.sizes import format_distinct_sizes, format_size, parse_bytes


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2.8GB", 2_800_000_000), ("512 mb", 512_000_000), ("1KiB", 1024), ("3g", 3_000_000_000), ("77", 77)],
)
def test_amounts_as_people_write_them(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1 elephant", "GB", "0", "0.0001KB", "1e9", "nan", "inf GB"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="memory"):
        parse_bytes(text)


def test_amounts_are_shown_as_they_are_read() -> None:
    assert format_size(2_800_000_000) == "2.80 GB"
    assert format_size(400_000_000) == "400.0 MB"


def test_amounts_that_differ_look_different() -> None:
    assert format_distinct_sizes(2_800_000_000, 400_000_000) == ("2.80 GB", "400 MB")
    assert format_distinct_sizes(2_800_400_000, 2_800_000_000) == ("2.8004 GB", "2.8000 GB")
