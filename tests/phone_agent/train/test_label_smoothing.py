"""Label smoothing: both backends, and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.reference_layers import cross_entropy_backward, cross_entropy_forward
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options

GRAPH = models.build("lenet", 10, (28, 28, 1))
BATCH = 6


def _step(name: str, smoothing: float) -> tuple[float, State]:
    state = State(GRAPH, 3)
    random = np.random.default_rng(5)
    images = random.standard_normal((BATCH, 28, 28, 1)).astype(np.float32)
    executable = get_backend(name).compile(GRAPH, state, BATCH, Options(label_smoothing=smoothing))
    return executable.loss_and_gradients(images, random.integers(0, 10, BATCH), 0.5), state


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_core_agrees_with_the_reference(smoothing: float) -> None:
    loss, state = _step("cpu", smoothing)
    wanted, reference = _step("reference", smoothing)
    assert loss == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(state.gradients, reference.gradients, atol=1e-5 * np.abs(reference.gradients).max())


def test_smoothing_changes_the_loss() -> None:
    assert _step("cpu", 0.1)[0] != pytest.approx(_step("cpu", 0.0)[0], rel=1e-6)


def test_agrees_with_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    random = np.random.default_rng(0)
    scores, labels = random.standard_normal((7, 13)), random.integers(0, 13, 7)
    theirs = torch.tensor(scores, requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(theirs, torch.tensor(labels), label_smoothing=0.1)
    wanted.backward()
    loss, softmax = cross_entropy_forward(scores, labels, 0.1)
    assert loss == pytest.approx(wanted.item(), rel=1e-12)
    np.testing.assert_allclose(cross_entropy_backward(softmax, labels, 1.0, 0.1), theirs.grad, rtol=1e-10)
