"""Fixtures that every area may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.labs import TestLab, running_lab


@pytest.fixture(scope="session")
def lab4() -> Iterator[TestLab]:
    """Four bare phones on two switches, shared by all tests: leave them as you found them."""
    with running_lab(4, 2) as lab:
        yield lab


@pytest.fixture(scope="session")
def provisioned_lab4() -> Iterator[TestLab]:
    """Four phones on two switches, ready to train: leave them as you found them."""
    with running_lab(4, 2) as lab:
        lab.clusterctl("provision")
        yield lab
