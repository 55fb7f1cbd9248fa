"""A diverged run must be noticed: no kernel turns NaN into a number."""

from __future__ import annotations

import numpy as np
import pytest

from phone_agent.core.library import isas, library
from phone_agent.core.ops import Kind
from tests.phone_agent.core import host
from tests.phone_agent.core.cases import CASES
from tests.phone_agent.core.guarded import Guard
from tests.phone_agent.core.memory import GAPS, Case, Memory

FORWARD = {
    Kind.CONV_FORWARD: "x",
    Kind.DEPTHWISE_FORWARD: "x",
    Kind.POOLING_FORWARD: "x",
    Kind.ADD_FORWARD: "a",
    Kind.LRN_FORWARD: "x",
    Kind.SOFTMAX_LOSS: "logits",
}
BACKWARD = {
    Kind.CONV_BACKWARD_DATA: "dy",
    Kind.CONV_BACKWARD_WEIGHTS: "dy",
    Kind.DEPTHWISE_BACKWARD_DATA: "dy",
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: "dy",
    Kind.OPTIMIZER_UPDATE: "gradients",
}


def _block(case: Case, name: str) -> Memory:
    return next(memory for memory in case.op.reachable() if memory.name == name)


def _sees_all(case: Case) -> bool:
    """Without padding or masks, every result depends on the poisoned operand."""
    return "p" not in case.name.split(" ")[0] and ("sink" not in case.name or "(False, ''" in case.name)


@pytest.mark.parametrize("isa", isas(library()))
@pytest.mark.parametrize(("kind", "poisoned"), [*FORWARD.items(), *BACKWARD.items()])
def test_nan_propagates(kind: Kind, poisoned: str, isa: str) -> None:
    cases = [case for case in CASES[kind](full=False) if _sees_all(case)][:12]
    assert cases
    for case in cases:
        _block(case, poisoned).data[:] = np.nan
        after = host.run(case, isa, 2, Guard.BEHIND)
        result = after[id(case.wanted[0].memory)]
        inside = result[~np.isin(case.wanted[0].values, GAPS)]
        assert not np.isfinite(inside).any(), case.name


@pytest.mark.parametrize("isa", isas(library()))
@pytest.mark.parametrize("kind", [Kind.CONV_BACKWARD_DATA, Kind.DEPTHWISE_BACKWARD_DATA])
@pytest.mark.parametrize("beyond", [np.inf, np.nan])
def test_without_an_activation_every_gradient_passes(kind: Kind, beyond: float, isa: str) -> None:
    """Also for NaN: a fused gradient with sums must not mask it."""
    cases = [case for case in CASES[kind](full=False) if "'norm', <Act.NONE" in case.name]
    assert cases
    for case in cases:
        _block(case, "z").data[:] = beyond
        after = host.run(case, isa, 2, Guard.BEHIND)
        dx = next(item for item in case.wanted if item.memory.name == "dx")
        np.testing.assert_allclose(after[id(dx.memory)], dx.values, atol=1e-3, err_msg=case.name)
