"""Every kind of op against the oracle, on the shapes and variants that the core is tested with."""

from __future__ import annotations

import pytest

from phone_agent.backends.opencl.launches import LAUNCH_BUILDERS
from phone_agent.core.ops import Kind
from tests.phone_agent.backends.opencl.on_device import planned, wrong_in
from tests.phone_agent.core.cases import CASES

# Some cases contain every fp16 bit pattern, including signaling NaNs: numpy warns when it casts them.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
KINDS = [pytest.param(kind, id=kind.name) for kind in LAUNCH_BUILDERS]


@pytest.mark.parametrize("kind", KINDS)
def test_op_matches_the_oracle(kind: Kind) -> None:
    wrong = [line for case in CASES[kind](full=False) if planned(case) for line in wrong_in(case)]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_op_matches_the_oracle_on_the_full_grid(kind: Kind) -> None:
    wrong = [line for case in CASES[kind](full=True) if planned(case) for line in wrong_in(case)]
    assert not wrong, "\n".join(wrong[:20])
