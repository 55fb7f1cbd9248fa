"""The reference backend against numerical derivatives, in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from phone_agent.backends import get_backend, reference_layers
from phone_agent.backends.reference_layers import Array
from phone_agent.contract import rng
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import (
    Add,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    Graph,
    GraphBuilder,
    Layer,
    LocalResponseNorm,
    MaxPool,
    Relu,
)
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options

CLASSES, BATCH, STEP = 3, 4, 1e-6


def chain(shape: tuple[int, int, int], *layers: Layer) -> Graph:
    """The layers one after the other, and a dense layer that outputs the scores."""
    net = GraphBuilder(shape)
    for number, layer in enumerate(layers):
        net.add(type(layer).__name__.lower() + str(number), layer)
    net.add("scores", Dense(CLASSES))
    return net.build()


def after_conv(layer: Layer, shape: tuple[int, int, int] = (7, 6, 4)) -> Graph:
    """After a convolution, whose gradients are correct only if the input gradient of the layer is."""
    return chain(shape, Conv(filters=4, kernel=2), layer)


def residual_net() -> Graph:
    """A layer with two consumers gets both gradients."""
    net = GraphBuilder((4, 4, 2))
    trunk = net.add("conv1", Conv(filters=2, kernel=3, padding=1))
    branch = net.add("conv2", Conv(filters=2, kernel=3, padding=1))
    net.add("sum", Add(), trunk, branch)
    net.add("fc", Dense(CLASSES))
    return net.build()


def inception_net() -> Graph:
    """One branch has two consumers, and branches differ in width."""
    net = GraphBuilder((4, 5, 2))
    wide = net.add("wide", Conv(filters=3, kernel=1))
    narrow = net.add("narrow", Conv(filters=2, kernel=3, padding=1), -1)
    pooled = net.add("pool", AvgPool(3, 1, padding=1), wide)
    net.add("join", Concat(), wide, narrow, pooled)
    net.add("norm", BatchNorm())
    net.add("relu", Relu())
    net.add("mean", GlobalAvgPool())
    net.add("fc", Dense(CLASSES))
    return net.build()


NETS = {
    "conv": chain((5, 6, 2), Conv(filters=3, kernel=3, stride=2, padding=1)),
    "conv after conv": after_conv(Conv(filters=2, kernel=3, padding=1)),
    "conv 1x3": after_conv(Conv(filters=3, kernel=(1, 3), padding=(0, 1))),
    "conv 3x2 stride 3": after_conv(Conv(filters=3, kernel=(3, 2), padding=(2, 1), stride=3)),
    "conv dilated": after_conv(Conv(filters=3, kernel=2, dilation=3, padding=1)),
    "conv without bias": after_conv(Conv(filters=3, kernel=1, stride=2, bias=False)),
    "conv in groups": after_conv(Conv(filters=6, kernel=3, groups=2, padding=1, stride=2)),
    "conv depthwise": after_conv(Conv(filters=4, kernel=3, groups=4, padding=1)),
    "conv depthwise with multiplier": after_conv(Conv(filters=8, kernel=2, groups=4, bias=False)),
    "max pool": after_conv(MaxPool(2, 2)),
    "max pool overlapping": after_conv(MaxPool(3, 2, padding=1)),
    "max pool with uncovered border": after_conv(MaxPool(4, 3)),
    "max pool ceil": after_conv(MaxPool(3, 2, ceil=True), (7, 8, 4)),
    "average pool": after_conv(AvgPool(3, 2, padding=1)),
    "average pool without padding count": after_conv(AvgPool(3, 2, padding=1, count_padding=False)),
    "average pool ceil": after_conv(AvgPool((2, 3), 2, ceil=True, count_padding=False), (8, 7, 4)),
    "global average": after_conv(GlobalAvgPool()),
    "norm": after_conv(BatchNorm()),
    "norm after dense": chain((3, 2, 2), Dense(6), BatchNorm(epsilon=0.1)),
    "relu": chain((3, 2, 2), Dense(6), Relu()),
    "relu6": chain((3, 2, 2), Dense(40, gain=1000.0), Relu(six=True), Dense(5, gain=0.1)),
    "local response norm": after_conv(LocalResponseNorm(size=3, alpha=2.0, beta=0.75, k=0.5)),
    "response norm of even size": after_conv(LocalResponseNorm(size=2, alpha=2.0, beta=0.5)),
    "dropout": after_conv(Dropout(0.3)),
    "residual": residual_net(),
    "inception": inception_net(),
}


def samples(graph: Graph) -> tuple[Array, Array]:
    images = rng.uniform((1,), BATCH * int(np.prod(graph.shape))).reshape(BATCH, *graph.shape) - 0.5
    return images, (rng.bits((2,), BATCH) % np.uint64(CLASSES)).astype(np.int64)


def compiled(graph: Graph) -> tuple[Executable, State]:
    state = State(graph, seed=3, dtype=np.float64)
    state.values += 0.1 * rng.uniform((4,), len(state.values))  # biases start at 0, which may hide bugs
    return get_backend("reference").compile(graph, state, BATCH, Options()), state


@pytest.mark.parametrize("graph", NETS.values(), ids=NETS)
def test_gradients_match_numerical_derivatives(graph: Graph) -> None:
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


def test_convolution_matches_its_definition() -> None:
    layer = Conv(filters=3, kernel=3, stride=2, padding=1)
    x = rng.uniform((1,), BATCH * 60).reshape(BATCH, 5, 6, 2)
    weight, bias = rng.uniform((2,), 54).reshape(3, 3, 2, 3), rng.uniform((3,), 3)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    direct = np.empty((BATCH, 3, 3, 3))
    for n, row, column, filter_ in np.ndindex(*direct.shape):
        window = padded[n, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
        direct[n, row, column, filter_] = (window * weight[..., filter_]).sum() + bias[filter_]
    np.testing.assert_allclose(reference_layers.conv_forward(layer, x, weight, bias), direct, rtol=1e-12)


def test_grouped_convolution_is_one_convolution_per_group() -> None:
    x, weight = rng.uniform((1,), 7 * 7 * 6).reshape(1, 7, 7, 6), rng.uniform((2,), 9 * 2 * 9).reshape(3, 3, 2, 9)
    whole = reference_layers.conv_forward(Conv(filters=9, kernel=3, groups=3), x, weight)
    parts = [
        reference_layers.conv_forward(
            Conv(filters=3, kernel=3), x[..., 2 * i : 2 * i + 2], weight[..., 3 * i : 3 * i + 3]
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(whole, np.concatenate(parts, axis=-1), rtol=1e-12)


def test_dilated_convolution_is_a_kernel_with_holes() -> None:
    x, weight = rng.uniform((1,), 81 * 2).reshape(1, 9, 9, 2), rng.uniform((2,), 36).reshape(3, 3, 2, 2)
    holes = np.zeros((5, 5, 2, 2))
    holes[::2, ::2] = weight
    dilated = reference_layers.conv_forward(Conv(filters=2, kernel=3, dilation=2, padding=1), x, weight)
    np.testing.assert_allclose(
        dilated, reference_layers.conv_forward(Conv(filters=2, kernel=5, padding=1), x, holes), rtol=1e-12
    )


def test_pooling_at_the_edges() -> None:
    x = -np.arange(1.0, 17.0).reshape(1, 4, 4, 1)
    largest, _ = reference_layers.maxpool_forward(MaxPool(3, 2, padding=1), x)
    assert largest[0, :, :, 0].tolist() == [[-1, -2], [-5, -6]]
    assert reference_layers.maxpool_forward(MaxPool(3, 2, ceil=True), x)[0][0, :, :, 0].tolist() == [
        [-1, -3],
        [-9, -11],
    ]
    whole = reference_layers.avgpool_forward(AvgPool(3, 2, padding=1), x)
    inside = reference_layers.avgpool_forward(AvgPool(3, 2, padding=1, count_padding=False), x)
    assert inside[0, 0, 0, 0] == -(1 + 2 + 5 + 6) / 4
    assert whole[0, 0, 0, 0] == -(1 + 2 + 5 + 6) / 9


def test_max_pool_ties_go_to_the_first_pixel() -> None:
    layer, x = MaxPool(2, 2), np.zeros((1, 2, 2, 1))
    _, argmax = reference_layers.maxpool_forward(layer, x)
    dx = reference_layers.maxpool_backward(layer, np.ones((1, 1, 1, 1)), argmax, x)
    assert dx.ravel().tolist() == [1, 0, 0, 0]


def test_running_statistics_are_updated_and_used_in_evaluation() -> None:
    graph = chain((4, 4, 3), BatchNorm(momentum=0.25))
    executable, state = compiled(graph)
    images, labels = samples(graph)
    executable.loss_and_gradients(images, labels, 1.0)
    running = state.statistics_packing.views(state.statistics)
    rows = images.reshape(-1, 3)
    np.testing.assert_allclose(running["batchnorm0.running_mean"], 0.25 * rows.mean(axis=0))
    np.testing.assert_allclose(running["batchnorm0.running_var"], 0.75 + 0.25 * rows.var(axis=0, ddof=1))
    for _ in range(200):
        executable.loss_and_gradients(images, labels, 1.0)
    values = state.packing.views(state.values)
    normal = (rows - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0, ddof=1) + 1e-5)
    normalized = (normal * values["batchnorm0.weight"] + values["batchnorm0.bias"]).reshape(BATCH, -1)
    scores = normalized @ values["scores.weight"] + values["scores.bias"]
    np.testing.assert_allclose(executable.forward(images), scores, rtol=1e-9)


def test_evaluation_has_no_dropout_and_no_side_effects() -> None:
    graph = chain((4, 4, 3), BatchNorm(), Dropout(0.9))
    executable, state = compiled(graph)
    before = state.statistics.copy()
    images, _ = samples(graph)
    np.testing.assert_array_equal(executable.forward(images), executable.forward(images))
    np.testing.assert_allclose(executable.forward(images[:1]), executable.forward(images)[:1], rtol=1e-12)
    np.testing.assert_array_equal(state.statistics, before)


def test_draw_determines_the_dropout_mask() -> None:
    graph = chain((4, 4, 3), Dropout(0.5))
    executable, _ = compiled(graph)
    images, labels = samples(graph)
    losses = [executable.loss_and_gradients(images, labels, 1.0, draw=draw) for draw in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]


@pytest.mark.parametrize("bucket_bytes", [1, 200, 1 << 20])
def test_ready_is_called_from_front_to_back(bucket_bytes: int) -> None:
    graph = residual_net()
    state = State(graph, seed=3)
    executable = get_backend("reference").compile(graph, state, BATCH, Options(bucket_bytes=bucket_bytes))
    reported: list[tuple[int, int]] = []
    executable.loss_and_gradients(*samples(graph), 1.0, ready=lambda start, end: reported.append((start, end)))
    starts, ends = zip(*reported, strict=True)
    assert starts == (0, *ends[:-1])
    assert ends[-1] == len(state.gradients)
    assert all((end - start) * 4 >= bucket_bytes for start, end in reported[:-1])


def test_loss_of_equal_scores_is_log_classes() -> None:
    graph = NETS["relu"]
    executable, state = compiled(graph)
    state.values[...] = 0
    images, labels = samples(graph)
    assert executable.loss_and_gradients(images, labels, 1.0) == pytest.approx(np.log(CLASSES))


def test_huge_scores_do_not_overflow() -> None:
    graph = NETS["relu"]
    executable, state = compiled(graph)
    state.values *= 1e6
    images, labels = samples(graph)
    assert np.isfinite(executable.loss_and_gradients(images, labels, 1.0))


def test_weighted_gradients_of_parts_add_up_to_the_whole_batch() -> None:
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
