"""Fixtures that every area may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.labs import TestLab, running_lab

# Slow is not wrong on a busy machine.
settings.register_profile("clusterctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clusterctl")

# Started in the background of a script, tests and all they start would ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
