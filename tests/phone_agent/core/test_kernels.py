"""Every kernel on every supported instruction set against the oracle, with guard pages around every tensor."""

from __future__ import annotations

import pytest

from phone_agent.core.library import isas, library
from phone_agent.core.ops import Kind
from tests.phone_agent.core.cases import CASES
from tests.phone_agent.core.kernel_check import check_in_subprocess

KINDS = [pytest.param(kind, id=kind.name) for kind in CASES]


@pytest.mark.parametrize("kind", KINDS)
def test_kernel_agrees_with_the_oracle(kind: Kind) -> None:
    wrong = check_in_subprocess(kind, isas(library()))
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_agrees_with_the_oracle_on_the_full_grid(kind: Kind) -> None:
    wrong = check_in_subprocess(kind, isas(library()), full=True)
    assert not wrong, "\n".join(wrong[:20])


def test_every_kernel_is_tested() -> None:
    assert set(Kind) - set(CASES) == {Kind.FMA_PEAK}  # has no result to check
