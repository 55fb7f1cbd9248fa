"""Every kind of step against the oracle, on the shapes and in the varieties the core is tested with."""

from __future__ import annotations

import pytest

from phone_agent.core.ops import Kind
from phone_agent.opencl.launches import MAKERS
from tests.core.cases import CASES
from tests.opencl.on_device import half_differs, planned, wrong_in

KINDS = [pytest.param(kind, id=kind.name) for kind in MAKERS]


@pytest.mark.parametrize("kind", KINDS)
def test_step_agrees_with_the_oracle(kind: Kind) -> None:
    wrong = [line for case in CASES[kind](full=False) if planned(case) for line in wrong_in(case)]
    assert not wrong, "\n".join(wrong[:20])


HALVED = [kind for kind in MAKERS if kind not in {Kind.NORM_FOLD, Kind.SOFTMAX_LOSS}]  # those read no activations


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in HALVED])
def test_activations_in_half_lose_only_their_last_digits(kind: Kind) -> None:
    cases = [case for case in CASES[kind](full=False) if planned(case)]
    wrong = [line for case in cases[:: max(1, len(cases) // 8)] for line in half_differs(case)]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_step_agrees_with_the_oracle_on_the_full_grid(kind: Kind) -> None:
    wrong = [line for case in CASES[kind](full=True) if planned(case) for line in wrong_in(case)]
    assert not wrong, "\n".join(wrong[:20])
