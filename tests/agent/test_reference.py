"""The oracle against the definition of a derivative, in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from phone_agent import rng
from phone_agent.nn.backends import Executable, backend
from phone_agent.nn.backends.reference import Array
from phone_agent.nn.graph import Add, Conv, Dense, Graph, GraphBuilder, MaxPool, Relu
from phone_agent.nn.packing import State

CLASSES, BATCH, STEP = 3, 4, 1e-6


def conv_net() -> Graph:
    net = GraphBuilder((5, 6, 2))
    net.add("conv", Conv(filters=3, kernel=3, stride=2, padding=1))
    net.add("fc", Dense(CLASSES))
    return net.build()


def deep_conv_net() -> Graph:
    """The second convolution checks the first one's gradient by its input."""
    net = GraphBuilder((6, 5, 1))
    net.add("conv1", Conv(filters=2, kernel=2))
    net.add("conv2", Conv(filters=2, kernel=3, padding=1))
    net.add("fc", Dense(CLASSES))
    return net.build()


def pool_net(kernel: int, stride: int) -> Graph:
    net = GraphBuilder((7, 7, 2))
    net.add("conv", Conv(filters=2, kernel=2))
    net.add("pool", MaxPool(kernel, stride))
    net.add("fc", Dense(CLASSES))
    return net.build()


def dense_net() -> Graph:
    net = GraphBuilder((3, 2, 2))
    net.add("fc1", Dense(6))
    net.add("relu", Relu())
    net.add("fc2", Dense(CLASSES))
    return net.build()


def residual_net() -> Graph:
    """A layer that feeds two others gets both gradients."""
    net = GraphBuilder((4, 4, 2))
    trunk = net.add("conv1", Conv(filters=2, kernel=3, padding=1))
    branch = net.add("conv2", Conv(filters=2, kernel=3, padding=1))
    net.add("sum", Add(), trunk, branch)
    net.add("fc", Dense(CLASSES))
    return net.build()


NETS = {
    "conv": conv_net(),
    "conv-conv": deep_conv_net(),
    "pool": pool_net(2, 2),
    "pool overlapping": pool_net(3, 2),
    "pool that leaves a border": pool_net(4, 3),
    "dense-relu": dense_net(),
    "residual": residual_net(),
}


def samples(graph: Graph) -> tuple[Array, Array]:
    images = rng.uniform((1,), BATCH * int(np.prod(graph.shape))).reshape(BATCH, *graph.shape) - 0.5
    return images, (rng.bits((2,), BATCH) % np.uint64(CLASSES)).astype(np.int64)


def compiled(graph: Graph) -> tuple[Executable, State]:
    state = State(graph, seed=3, dtype=np.float64)
    state.values += 0.1 * rng.uniform((4,), len(state.values))  # biases start at zero, where a bug may hide
    return backend("reference").compile(graph, state, BATCH), state


@pytest.mark.parametrize("graph", NETS.values(), ids=NETS.keys())
def test_every_gradient_is_the_slope_of_the_loss(graph: Graph) -> None:
    executable, state = compiled(graph)
    images, labels = samples(graph)
    executable.loss_and_gradients(images, labels, 1.0)
    gradients = state.gradients.copy()
    slopes = np.empty_like(gradients)
    for index, value in enumerate(state.values.copy()):
        losses = []
        for moved in (value + STEP, value - STEP):
            state.values[index] = moved
            losses.append(executable.loss_and_gradients(images, labels, 1.0))
        state.values[index] = value
        slopes[index] = (losses[0] - losses[1]) / (2 * STEP)
    np.testing.assert_allclose(gradients, slopes, rtol=1e-5, atol=1e-8)


def test_convolution_agrees_with_its_definition() -> None:
    graph = conv_net()
    executable, state = compiled(graph)
    images, _ = samples(graph)
    executable.forward(images)
    layer = graph.nodes[0]
    weight, bias = (state.packing.slots[f"conv.{name}"].view(state.values) for name in ("weight", "bias"))
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    direct = np.empty((BATCH, *layer.shape))
    for n, row, column, filter_ in np.ndindex(*direct.shape):
        window = padded[n, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        direct[n, row, column, filter_] = (window * weight[..., filter_]).sum() + bias[filter_]
    scores = direct.reshape(BATCH, -1) @ state.packing.slots["fc.weight"].view(state.values)
    scores += state.packing.slots["fc.bias"].view(state.values)
    np.testing.assert_allclose(executable.forward(images), scores, rtol=1e-12)


def test_the_loss_of_even_scores_is_the_logarithm_of_the_classes() -> None:
    graph = dense_net()
    executable, state = compiled(graph)
    state.values[...] = 0
    images, labels = samples(graph)
    assert executable.loss_and_gradients(images, labels, 1.0) == pytest.approx(np.log(CLASSES))


def test_huge_scores_do_not_overflow() -> None:
    graph = dense_net()
    executable, state = compiled(graph)
    state.values *= 1e6
    images, labels = samples(graph)
    assert np.isfinite(executable.loss_and_gradients(images, labels, 1.0))


def test_weighted_gradients_of_parts_sum_to_the_gradient_of_the_whole() -> None:
    graph = residual_net()
    executable, state = compiled(graph)
    images, labels = samples(graph)
    executable.loss_and_gradients(images, labels, 1.0)
    whole = state.gradients.copy()
    summed = np.zeros_like(whole)
    for part in (slice(0, 1), slice(1, 4)):
        executable.loss_and_gradients(images[part], labels[part], len(labels[part]) / BATCH)
        summed += state.gradients
    np.testing.assert_allclose(summed, whole, rtol=1e-10, atol=1e-15)
