from __future__ import annotations

import pytest

from phone_agent import models
from phone_agent.nn.graph import Add, Conv, Dense, GraphBuilder, GraphError, MaxPool, Relu


def test_shapes_follow_the_layers() -> None:
    net = GraphBuilder((9, 7, 3))
    net.add("conv", Conv(filters=4, kernel=3, stride=2, padding=1))
    net.add("pool", MaxPool(kernel=2, stride=1))
    net.add("fc", Dense(units=5))
    shapes = [node.shape for node in net.build().nodes]
    assert shapes == [(5, 4, 4), (4, 3, 4), (5,)]


def test_a_window_that_does_not_fit_is_told_with_the_layers_name() -> None:
    net = GraphBuilder((4, 4, 1))
    with pytest.raises(GraphError, match=r"layer conv1 \(Conv\): its 5x5 window does not fit into 4x4"):
        net.add("conv1", Conv(filters=2, kernel=5))


def test_a_layer_that_needs_an_image_says_so() -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("fc", Dense(units=3))
    with pytest.raises(GraphError, match=r"layer pool .*needs an image .*\(3,\)"):
        net.add("pool", MaxPool(kernel=2, stride=2))


def test_adding_branches_of_different_shape_is_refused() -> None:
    net = GraphBuilder((4, 4, 1))
    first = net.add("relu", Relu())
    second = net.add("conv", Conv(filters=2, kernel=1))
    with pytest.raises(GraphError, match=r"layer sum \(Add\): adds \(4, 4, 1\) to \(4, 4, 2\)"):
        net.add("sum", Add(), first, second)


def test_a_name_is_used_once() -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("relu", Relu())
    with pytest.raises(GraphError, match="layer relu: the name is taken"):
        net.add("relu", Relu())


def test_lenet_has_the_published_number_of_parameters() -> None:
    assert models.build("lenet", 10, (28, 28, 1)).parameter_count == 431_080


@pytest.mark.parametrize("shape", [(32, 32, 3), (16, 16, 1), (28, 40, 1)])
def test_lenet_takes_other_images(shape: tuple[int, int, int]) -> None:
    assert models.build("lenet", 7, shape).nodes[-1].shape == (7,)


def test_lenet_on_a_tiny_image_names_the_layer() -> None:
    with pytest.raises(GraphError, match="layer conv2"):
        models.build("lenet", 10, (12, 12, 1))


def test_an_unknown_model_gets_a_suggestion() -> None:
    with pytest.raises(models.UnknownModelError, match=r"no model called 'lenett'; did you mean lenet\?"):
        models.build("lenett", 10, (28, 28, 1))
    with pytest.raises(models.UnknownModelError, match="there is: lenet"):
        models.build("unheard-of", 10, (28, 28, 1))
