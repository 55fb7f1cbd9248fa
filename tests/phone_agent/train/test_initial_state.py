"""The initial state: given weights, a new head, frozen layers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import DataSpec
from phone_agent.nn.graph import Add, BatchNorm, Conv, Dense, GlobalAvgPool, Graph, GraphBuilder
from phone_agent.nn.packing import State
from phone_agent.nn.weights import WeightsError, load_pretrained, to_state_dict
from phone_agent.train.initial_state import build_graph, frozen_parameters, initial_state
from tests.phone_agent.phones import run_spec

CIFAR = DataSpec("synthetic", 400, (32, 32, 3), 10)


def resnet(classes: int = 10) -> tuple[Graph, State]:
    graph = models.build("resnet20", classes, (32, 32, 3), 0.25)
    return graph, State(graph, seed=classes)


def test_all_weights_are_loaded_if_all_fit() -> None:
    graph, state = resnet()
    other = State(graph, seed=5)
    assert load_pretrained(graph, other, to_state_dict(graph, state)) == ()
    np.testing.assert_array_equal(other.values, state.values)


@pytest.mark.parametrize("absent", [(), ("fc.weight", "fc.bias")])
def test_head_is_replaced_if_classes_differ(absent: tuple[str, ...]) -> None:
    graph, state = resnet()
    weights = {name: value for name, value in to_state_dict(*resnet(7)).items() if name not in absent}
    own = to_state_dict(graph, state)
    assert load_pretrained(graph, state, weights) == ("fc.weight", "fc.bias")
    after = to_state_dict(graph, state)
    np.testing.assert_array_equal(after["fc.weight"], own["fc.weight"])
    np.testing.assert_array_equal(after["conv1.weight"], weights["conv1.weight"])


def test_head_is_replaced_on_request() -> None:
    graph, state = resnet()
    other = State(graph, seed=5)
    own, given = to_state_dict(graph, other), to_state_dict(graph, state)
    assert load_pretrained(graph, other, given, new_head=True) == ("fc.weight", "fc.bias")
    after = to_state_dict(graph, other)
    np.testing.assert_array_equal(after["fc.weight"], own["fc.weight"])
    np.testing.assert_array_equal(after["conv1.weight"], given["conv1.weight"])


def test_head_of_squeezenet_is_a_convolution() -> None:
    seven, ten = (models.build("squeezenet_v1_1", classes, (64, 64, 3), 0.25) for classes in (7, 10))
    assert load_pretrained(ten, State(ten, 2), to_state_dict(seven, State(seven, 1))) == (
        "classifier.1.weight",
        "classifier.1.bias",
    )


def normalized_dense(net: GraphBuilder, classes: int) -> None:
    net.add("fc", Dense(classes))
    net.add("bn", BatchNorm())


def normalized_convolution(net: GraphBuilder, classes: int) -> None:
    net.add("fc", Conv(classes, kernel=1))
    net.add("each", Conv(classes, kernel=3, groups=classes, bias=False))
    net.add("bn", BatchNorm())
    net.add("pool", GlobalAvgPool())


def two_sides(net: GraphBuilder, classes: int) -> None:
    wide = net.add("wide", Conv(classes, kernel=3), 1)
    narrow = net.add("narrow", Conv(classes, kernel=3), 1)
    net.add("sum", Add(), wide, narrow)
    net.add("pool", GlobalAvgPool())


NORM = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")


@pytest.mark.parametrize(
    ("head", "tensors"),
    [
        (normalized_dense, ("fc.weight", "fc.bias", *NORM)),
        (normalized_convolution, ("fc.weight", "fc.bias", "each.weight", *NORM)),
        (two_sides, ("wide.weight", "wide.bias", "narrow.weight", "narrow.bias")),
    ],
)
@pytest.mark.parametrize("before", [10, 5])
def test_all_layers_with_classes_as_channels_are_the_head(
    head: Callable[[GraphBuilder, int], None], tensors: tuple[str, ...], before: int
) -> None:
    known, graph = (with_head(head, classes) for classes in (before, 5))
    trained, state = State(known, seed=1), State(graph, seed=2)
    trained.statistics += 1.5
    given, own = to_state_dict(known, trained), to_state_dict(graph, state)
    assert load_pretrained(graph, state, given, new_head=before == 5) == tensors
    for name, value in to_state_dict(graph, state).items():
        np.testing.assert_array_equal(value, own[name] if name in tensors else given[name])


def with_head(head: Callable[[GraphBuilder, int], None], classes: int) -> Graph:
    net = GraphBuilder((4, 4, 2))
    net.add("conv", Conv(filters=6, kernel=1))
    net.add("bn0", BatchNorm())
    head(net, classes)
    return net.build()


def test_only_the_head_may_differ() -> None:
    graph, state = resnet()
    weights = to_state_dict(*resnet(7))
    weights["conv1.weight"] = np.zeros((3, 3), np.float32)
    before = state.values.copy()
    with pytest.raises(WeightsError, match=re.escape("wrong shape: conv1.weight is (3, 3)")):
        load_pretrained(graph, state, weights)
    np.testing.assert_array_equal(state.values, before)


def test_all_ranks_start_from_the_weights_of_the_first(tmp_path: Path) -> None:
    spec = replace(run_spec((4, 4)), model="resnet20", data=CIFAR, weights="weights.safetensors")
    graph = build_graph(tmp_path, spec)
    given = State(graph, seed=77)
    given.statistics += 1.5
    safetensors.write(tmp_path / "weights.safetensors", to_state_dict(graph, given))
    sums: list[NDArray[np.float32]] = []
    first = initial_state(tmp_path, spec, graph, 0, sums.append)
    arriving = iter(sums)

    def add(buffer: NDArray[np.float32]) -> None:
        buffer += next(arriving)

    second = initial_state(tmp_path / "nowhere", spec, graph, 1, add)
    for state in (first, second):
        np.testing.assert_array_equal(state.values, given.values)
        np.testing.assert_array_equal(state.statistics, given.statistics)


def test_nothing_is_exchanged_without_weights(tmp_path: Path) -> None:
    spec = run_spec((4, 4))
    graph = build_graph(tmp_path, spec)
    state = initial_state(tmp_path, spec, graph, 1, lambda _: pytest.fail("nothing to share"))
    np.testing.assert_array_equal(state.values, State(graph, spec.seed).values)


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        (("conv1",), 1),
        (("layer1.*",), 18),
        (("layer1",), 18),
        (("conv1.weight", "bn1"), 3),
        (("*.bias",), 22),
        (("fc.bias", "fc.bias"), 1),
    ],
)
def test_layers_are_frozen_by_name_or_pattern(patterns: tuple[str, ...], count: int) -> None:
    graph, state = resnet()
    found = frozen_parameters(graph, patterns)
    assert len(found) == len(set(found)) == count
    assert set(found) <= set(state.packing.slots)


def test_freezing_nothing_or_everything_is_an_error() -> None:
    graph, _ = resnet()
    assert frozen_parameters(graph, ()) == ()
    with pytest.raises(BadRequestError, match=re.escape("matches 'layer9.*'; did you mean layer")):
        frozen_parameters(graph, ("layer9.*",))
    with pytest.raises(BadRequestError, match="nothing is left to train"):
        frozen_parameters(graph, ("*",))


def test_custom_model_is_built_from_the_run_directory(tmp_path: Path) -> None:
    source = "from phone_agent.nn.graph import *\n\n\ndef net(classes, shape):\n    b = GraphBuilder(shape)\n"
    (tmp_path / "mine.py").write_text(source + "    b.add('fc', Dense(classes))\n    return b.build()\n")
    spec = replace(run_spec((4,)), model="net", model_file="mine.py")
    assert [node.name for node in build_graph(tmp_path, spec).nodes] == ["fc"]
