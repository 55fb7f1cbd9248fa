"""Fixtures: one shared lab per mode that this host supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from orchestrator.lab.modes import unavailable_reason
from orchestrator.lab.spec import Mode
from tests.labs import TestLab, running_lab

LabFactory = Callable[[Mode], TestLab]


@pytest.fixture(scope="session")
def lab_of() -> Iterator[LabFactory]:
    """Three phones on two switches. Tests must restore the state of the lab."""
    labs: dict[Mode, TestLab] = {}
    with ExitStack() as stack:

        def get(mode: Mode) -> TestLab:
            if mode not in labs:
                if reason := unavailable_reason(mode):
                    pytest.skip(reason)
                labs[mode] = stack.enter_context(running_lab(3, 2, mode=mode))
            return labs[mode]

        yield get


@pytest.fixture(params=list(Mode))
def any_lab(request: pytest.FixtureRequest, lab_of: LabFactory) -> TestLab:
    return lab_of(request.param)


@pytest.fixture(params=[Mode.ROOT, Mode.USER])
def namespaced_lab(request: pytest.FixtureRequest, lab_of: LabFactory) -> TestLab:
    return lab_of(request.param)


@pytest.fixture
def loopback_lab(lab_of: LabFactory) -> TestLab:
    return lab_of(Mode.LOOPBACK)
