"""A lab in every mode this computer allows, each made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from orchestrator.lab.modes import why_not
from orchestrator.lab.spec import Mode
from tests.labs import TestLab, running_lab

LabOf = Callable[[Mode], TestLab]


@pytest.fixture(scope="session")
def lab_of() -> Iterator[LabOf]:
    """Three phones on two switches; tests leave them as they found them."""
    made: dict[Mode, TestLab] = {}
    with ExitStack() as stack:

        def get(mode: Mode) -> TestLab:
            if mode not in made:
                if reason := why_not(mode):
                    pytest.skip(f"no lab {reason}")
                made[mode] = stack.enter_context(running_lab(3, 2, mode=mode))
            return made[mode]

        yield get


@pytest.fixture(params=list(Mode))
def any_lab(request: pytest.FixtureRequest, lab_of: LabOf) -> TestLab:
    return lab_of(request.param)


@pytest.fixture(params=[Mode.ROOT, Mode.USER])
def namespaced_lab(request: pytest.FixtureRequest, lab_of: LabOf) -> TestLab:
    return lab_of(request.param)


@pytest.fixture
def loopback_lab(lab_of: LabOf) -> TestLab:
    return lab_of(Mode.LOOPBACK)
