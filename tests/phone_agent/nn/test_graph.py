from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.nn.graph import (
    Add,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    GraphBuilder,
    GraphError,
    IntPair,
    Layer,
    LocalResponseNorm,
    MaxPool,
    Relu,
    as_pair,
)
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options


def test_shapes_follow_the_layers() -> None:
    net = GraphBuilder((9, 7, 3))
    net.add("conv", Conv(filters=4, kernel=3, stride=2, padding=1))
    net.add("pool", MaxPool(kernel=2, stride=1))
    net.add("fc", Dense(units=5))
    shapes = [node.shape for node in net.build().nodes]
    assert shapes == [(5, 4, 4), (4, 3, 4), (5,)]


def test_a_window_that_does_not_fit_names_the_layer() -> None:
    net = GraphBuilder((4, 4, 1))
    with pytest.raises(GraphError, match=r"layer conv1 \(Conv\): the 5x5 window does not fit into 4x4"):
        net.add("conv1", Conv(filters=2, kernel=5))


def test_pooling_needs_an_image() -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("fc", Dense(units=3))
    with pytest.raises(GraphError, match=r"layer pool .*needs an image .*\(3,\)"):
        net.add("pool", MaxPool(kernel=2, stride=2))


def test_adding_different_shapes_is_rejected() -> None:
    net = GraphBuilder((4, 4, 1))
    first = net.add("relu", Relu())
    second = net.add("conv", Conv(filters=2, kernel=1))
    with pytest.raises(GraphError, match=r"layer sum \(Add\): cannot add shapes \(4, 4, 1\) and \(4, 4, 2\)"):
        net.add("sum", Add(), first, second)


@pytest.mark.parametrize("position", [-2, 1, 7])
def test_an_unknown_position_is_rejected(position: int) -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("relu", Relu())
    with pytest.raises(GraphError, match=rf"layer sum \(Add\): no layer at position {position}:"):
        net.add("sum", Add(), position, -1)


def test_concatenating_different_sizes_is_rejected() -> None:
    net = GraphBuilder((4, 4, 1))
    first = net.add("relu", Relu())
    second = net.add("pool", MaxPool(kernel=2, stride=2))
    with pytest.raises(GraphError, match=r"layer join \(Concat\): cannot concatenate maps of different sizes"):
        net.add("join", Concat(), first, second)


def test_groups_must_divide_the_channels() -> None:
    with pytest.raises(
        GraphError, match=r"layer conv \(Conv\): 3 channels and 4 filters must be divisible by 2 groups"
    ):
        GraphBuilder((4, 4, 3)).add("conv", Conv(4, kernel=1, groups=2))


def test_layer_names_are_unique() -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("relu", Relu())
    with pytest.raises(GraphError, match="layer relu: the name is already used"):
        net.add("relu", Relu())


@pytest.mark.parametrize("name", ["optimizer", "optimizer.fc"])
def test_no_layer_is_called_as_what_checkpoints_keep_of_the_optimizer(name: str) -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("optimizers", Relu())
    with pytest.raises(GraphError, match=f"layer {name}: .*marks optimizer state"):
        net.add(name, Dense(units=3))


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (MaxPool(kernel=2, stride=0), "stride 0"),
        (MaxPool(kernel=0, stride=1), "window 0"),
        (MaxPool(kernel=3, stride=1, padding=2), "at most half"),
        (AvgPool(kernel=(1, 0), stride=1), r"window \(1, 0\)"),
        (AvgPool(kernel=2, stride=1, padding=-1), "padding -1"),
        (Conv(2, kernel=0), "window 0"),
        (Conv(2**25, kernel=1), "33554432 channels"),
        (Dense(0), r"invalid shape \(0,\)"),
        (Dense(2**24 + 1), "16777217 channels or classes"),
        (Dropout(1.0), "rate 1"),
        (Dropout(-0.1), "rate -0.1"),
        (Dropout(float("nan")), "rate nan"),
        (LocalResponseNorm(size=0), "size 0"),
    ],
)
def test_invalid_layers_are_rejected_by_name(layer: Layer, said: str) -> None:
    with pytest.raises(GraphError, match=rf"layer odd \({type(layer).__name__}\): .*{said}"):
        GraphBuilder((4, 4, 2)).add("odd", layer)


def test_images_with_too_many_values_are_rejected() -> None:
    with pytest.raises(GraphError, match="values per image"):
        GraphBuilder((50_000, 50_000, 1))


def side() -> st.SearchStrategy[IntPair]:
    return st.one_of(st.integers(1, 4), st.tuples(st.integers(1, 4), st.integers(1, 4)))


def near(draw: st.DrawFn, kernel: IntPair) -> IntPair:
    """Padding of at most half a window, so that every pooling window overlaps the image."""
    return tuple(draw(st.integers(0, reach // 2)) for reach in as_pair(kernel))  # type: ignore[return-value]


@st.composite
def layers(draw: st.DrawFn, channels: int) -> Layer:
    kernel, stride, ceil = draw(side()), draw(st.integers(1, 4)), draw(st.booleans())
    padding = near(draw, kernel)
    groups = draw(st.sampled_from([each for each in range(1, channels + 1) if channels % each == 0]))
    filters = groups * draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 3))
    choice: list[Layer] = [
        Conv(filters, kernel, stride, padding, dilation, groups),
        MaxPool(kernel, stride, padding, ceil),
        AvgPool(kernel, stride, padding, ceil, count_padding=draw(st.booleans())),
        GlobalAvgPool(),
        BatchNorm(),
        Relu(),
        LocalResponseNorm(),
        Dense(5),
    ]
    return draw(st.sampled_from(choice))


@given(data=st.data(), height=st.integers(1, 13), width=st.integers(1, 13), channels=st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_shapes_match_the_reference_backend(data: st.DataObject, height: int, width: int, channels: int) -> None:
    """Or the layer is rejected by name."""
    net = GraphBuilder((height, width, channels))
    try:
        net.add("layer", data.draw(layers(channels)))
    except GraphError as error:
        assert str(error).startswith("layer layer (")  # noqa: PT017 - raising nothing is fine as well
        return
    graph = net.build()
    executable = get_backend("reference").compile(graph, State(graph, seed=0), 2, Options())
    assert executable.forward(np.ones((2, height, width, channels), np.float32)).shape[1:] == graph.nodes[-1].shape


@pytest.mark.parametrize(
    ("model", "side", "least"),
    [("resnet50", 32, 2), ("resnet50", 33, 1), ("resnet50", 64, 1), ("mobilenet_v1", 32, 2), ("lenet", 28, 1)],
)
def test_batch_normalization_over_one_pixel_needs_two_images(model: str, side: int, least: int) -> None:
    graph = models.build(model, 10, (side, side, models.model(model).shape[2]))
    assert (graph.min_batch, graph.min_capacity) == (least, 2 * least - 1)


def test_batch_normalization_of_a_dense_layer_needs_two_images() -> None:
    net = GraphBuilder((8, 8, 3))
    net.add("fc", Dense(10))
    net.add("norm", BatchNorm())
    assert net.build().min_batch == 2
