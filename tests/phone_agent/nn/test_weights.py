from __future__ import annotations

import re

import numpy as np
import pytest

from phone_agent import models
from phone_agent.nn.graph import Dense, Graph, GraphBuilder, MaxPool
from phone_agent.nn.packing import State
from phone_agent.nn.weights import WeightsError, from_state_dict, load_pretrained, to_state_dict


def resnet() -> tuple[Graph, State]:
    graph = models.build("resnet50", classes=10, shape=(32, 32, 3), width=0.125)
    return graph, State(graph, seed=1)


def test_names_and_layouts_match_torchvision() -> None:
    graph = models.build("resnet50", classes=1000)
    weights = to_state_dict(graph, State(graph, seed=1))
    assert weights["conv1.weight"].shape == (64, 3, 7, 7)
    assert weights["layer3.5.conv2.weight"].shape == (256, 256, 3, 3)
    assert weights["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert weights["layer1.0.downsample.1.running_var"].shape == (256,)
    assert weights["fc.weight"].shape == (1000, 2048)
    assert len(weights) == 267  # torchvision has 320, including 53 batch counters


@pytest.mark.parametrize(
    ("model", "tensors"),
    [
        ("mobilenet_v2", ["features.0.0.weight", "features.1.conv.1.weight", "features.17.conv.3.running_mean"]),
        ("mobilenet_v2", ["features.2.conv.1.0.weight", "features.18.1.bias", "classifier.1.weight"]),
        ("squeezenet_v1_0", ["features.0.weight", "features.12.expand3x3.bias", "classifier.1.weight"]),
        ("squeezenet_v1_1", ["features.3.squeeze.weight", "features.12.expand1x1.bias"]),
        (
            "inception_v3",
            ["Conv2d_1a_3x3.conv.weight", "Mixed_5b.branch_pool.bn.bias", "Mixed_7c.branch3x3dbl_3b.conv.weight"],
        ),
        ("inception_v3", ["Mixed_6b.branch7x7dbl_5.bn.running_var", "Mixed_7a.branch7x7x3_4.conv.weight", "fc.bias"]),
        ("googlenet", ["conv1.conv.weight", "inception3a.branch2.1.conv.weight", "inception5b.branch4.1.conv.weight"]),
        ("alexnet", ["features.0.weight", "features.10.bias", "classifier.6.weight"]),
    ],
)
def test_other_networks_have_torchvision_names(model: str, tensors: list[str]) -> None:
    graph = models.build(model, width=0.1)
    assert set(tensors) <= set(to_state_dict(graph, State(graph, seed=0)))


def test_export_and_load_round_trip() -> None:
    graph, state = resnet()
    state.statistics += 0.5
    other = State(graph, seed=2)
    from_state_dict(graph, other, to_state_dict(graph, state))
    np.testing.assert_array_equal(other.values, state.values)
    np.testing.assert_array_equal(other.statistics, state.statistics)


def test_dense_weights_are_exported_for_channel_first_images() -> None:
    net = GraphBuilder((4, 6, 3))
    net.add("pool", MaxPool(kernel=2, stride=2))
    net.add("fc", Dense(5))
    graph = net.build()
    state = State(graph, seed=1, dtype=np.float64)
    image = np.arange(18.0).reshape(2, 3, 3)
    ours = image.reshape(-1) @ state.packing.views(state.values)["fc.weight"]
    exported = to_state_dict(graph, state)["fc.weight"]
    np.testing.assert_allclose(exported @ image.transpose(2, 0, 1).reshape(-1), ours)


def test_exported_weights_are_copies() -> None:
    graph, state = resnet()
    weights = to_state_dict(graph, state)
    for weight in weights.values():
        weight[...] = 7
    assert not (state.values == 7).any()


def test_counters_and_auxiliary_heads_are_ignored() -> None:
    graph, state = resnet()
    weights = to_state_dict(graph, state)
    weights |= {"bn1.num_batches_tracked": np.array(3), "AuxLogits.conv0.conv.weight": np.zeros((1, 1))}
    before = state.values.copy()
    state.values[...] = 0
    from_state_dict(graph, state, weights)
    assert (state.values == before).all()


def test_layers_named_like_auxiliary_heads_are_loaded() -> None:
    net = GraphBuilder((4, 4, 1))
    for name in ("aux1", "AuxLogits.fc", "aux2"):
        net.add(name, Dense(5))
    graph = net.build()
    state, other = State(graph, seed=1), State(graph, seed=2)
    weights = {**to_state_dict(graph, state), "aux1.conv.weight": np.zeros((1, 1))}
    from_state_dict(graph, other, weights)
    np.testing.assert_array_equal(other.values, state.values)
    load_pretrained(graph, State(graph, seed=3), weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.bias": None}, "missing: fc.bias"),
        ({"fc.bias": None, "fc.weight": None}, "missing: fc.weight, fc.bias"),
        ({"head.bias": np.zeros(3)}, "unexpected: head.bias"),
        ({"fc.weight": np.zeros((1000, 256))}, "wrong shape: fc.weight is (1000, 256), not (10, 256)"),
        ({"fc.bias": np.full(10, np.nan)}, "not all finite: fc.bias"),
        ({f"extra.{i}": np.zeros(1) for i in range(7)}, "extra.4 and 2 more"),
    ],
)
def test_mismatched_weights_are_rejected_without_changes(change: dict[str, np.ndarray | None], message: str) -> None:
    graph, state = resnet()
    before = state.values.copy()
    weights = {**to_state_dict(graph, State(graph, seed=2)), **change}
    with pytest.raises(WeightsError, match=re.escape(message)):
        from_state_dict(graph, state, {name: value for name, value in weights.items() if value is not None})
    np.testing.assert_array_equal(state.values, before)
