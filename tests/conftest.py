"""Fixtures shared by all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.durability import DiskLog
from tests.labs import TestLab, running_lab

# Hypothesis: no deadlines, because the machine may be busy.
settings.register_profile("clusterctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clusterctl")

# A background job of a script ignores SIGINT, and so would the processes to which tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def disk_log(monkeypatch: pytest.MonkeyPatch) -> DiskLog:
    return DiskLog(monkeypatch)


@pytest.fixture(scope="session")
def lab4() -> Iterator[TestLab]:
    """Four bare phones on two switches, shared by all tests, which must restore their state."""
    with running_lab(4, 2) as lab:
        yield lab


@pytest.fixture(scope="session")
def provisioned_lab4() -> Iterator[TestLab]:
    """Four provisioned phones on two switches, shared by all tests, which must restore their state."""
    with running_lab(4, 2) as lab:
        lab.clusterctl("provision")
        yield lab
