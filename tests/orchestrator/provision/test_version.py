from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.provision.termux.version import Version


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("3.14.5-1", "3.14.6-1"),
        ("4.1.5", "4.1.5-1"),
        ("1.0~rc1", "1.0"),
        ("9.9p2-1", "10.5p1"),
        ("2.4", "1:1.0"),
        ("1.0a", "1.0+b"),
        ("1.9", "1.10"),
        ("0~", ""),
    ],
)
def test_versions_in_order(older: str, newer: str) -> None:
    assert Version(older) < Version(newer)
    assert not Version(newer) < Version(older)


def test_a_missing_revision_is_revision_zero() -> None:
    assert Version("1.0") == Version("1.0-0")


@given(*[st.from_regex(r"\A[0-9][0-9a-b.+~]{0,5}(-[0-9a-b.+~]{1,3})?\Z")] * 2)
@settings(max_examples=60, deadline=None)
def test_the_order_is_that_of_dpkg(left: str, right: str) -> None:
    for operator, ours in (("lt", Version(left) < Version(right)), ("eq", Version(left) == Version(right))):
        dpkg = subprocess.run(
            ["dpkg", "--compare-versions", left, operator, right], check=False, stderr=subprocess.DEVNULL
        )
        assert ours == (dpkg.returncode == 0), (left, operator, right)


@pytest.mark.parametrize(
    ("relation", "holds"), [(">=", True), ("<<", False), ("=", False), (">>", True), ("<=", False)]
)
def test_relations(relation: str, holds: bool) -> None:  # noqa: FBT001  a test's table
    assert Version("2.1").satisfies(relation, "2.0") is holds
