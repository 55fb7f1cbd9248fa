from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.plan.link_rate import allreduce_limit_s, bytes_per_second


@pytest.mark.parametrize(("rate", "expected"), [("1gbit", 125e6), ("100mbit", 12.5e6), ("2.5 Gbit", 312.5e6)])
def test_rates_are_parsed_as_tc_writes_them(rate: str, expected: float) -> None:
    assert bytes_per_second(rate) == pytest.approx(expected)


@pytest.mark.parametrize("rate", ["fast", "", "1", "0gbit", "-1gbit", "1gbyte"])
def test_other_rates_fail(rate: str) -> None:
    with pytest.raises(UsageError):
        bytes_per_second(rate)


def test_allreduce_limit_matches_the_textbook_formula() -> None:
    assert allreduce_limit_s(4, 102_400_000, "1gbit") == pytest.approx(1.2288)
