"""Our ONNX files, read by those who define the format and run by another engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from orchestrator.export import onnx as ours
from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.nn.graph import (
    AvgPool,
    Dense,
    GlobalAvgPool,
    Graph,
    GraphBuilder,
    LocalResponseNorm,
    MaxPool,
    Relu,
)
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.nn.weights import to_state_dict
from tests.phone_agent.random_graphs import graphs

# Small enough to be quick, large enough for every layer to have something to do.
SIZES = {"inception_v3": 80, "alexnet": 67, "lenet": 28}
TOLERANCE = 2e-4


def state_of(graph: Graph) -> State:
    """With statistics as after some training."""
    state, draw = State(graph, seed=1), np.random.default_rng(7)
    for name, view in state.statistics_packing.views(state.statistics).items():
        view[...] = draw.uniform(0.5, 2.0, view.shape) if name.endswith("var") else draw.normal(0, 0.3, view.shape)
    return state


def images_for(graph: Graph, count: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(size=(count, *graph.shape)).astype(np.float32)


def run(content: bytes, images: NDArray[np.float32]) -> NDArray[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {ours.INPUT: images.transpose(0, 3, 1, 2)})
    return np.asarray(scores)


def close(found: NDArray[Any], wanted: NDArray[Any]) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE * max(1e-3, np.abs(wanted).max())


@pytest.mark.parametrize("name", models.NAMES)
def test_onnxruntime_finds_what_our_own_forward_finds(name: str) -> None:
    side = SIZES.get(name, 32 if models.MODELS[name].shape[0] == 32 else 64)
    shape = (side, side, models.MODELS[name].shape[2])
    graph = models.build(name, 10, shape, 0.25)
    state = state_of(graph)
    content = ours.model(graph, to_state_dict(graph, state), {"mean": "[0.5]"})
    onnx.checker.check_model(onnx.load_model_from_string(content), full_check=True)
    images = images_for(graph, 3)
    scores = get_backend("cpu").compile(graph, state, 3, Options()).forward(images)
    close(run(content, images), scores)
    close(run(content, images[:1]), scores[:1])


@settings(max_examples=15)
@given(graph=graphs())
def test_any_graph_can_be_said(graph: Graph) -> None:
    state = state_of(graph)
    content = ours.model(graph, to_state_dict(graph, state), {})
    onnx.checker.check_model(onnx.load_model_from_string(content), full_check=True)
    images = images_for(graph, 2)
    close(run(content, images), get_backend("reference").compile(graph, state, 2, Options()).forward(images))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("side", [6, 7, 8, 9])
def test_windows_hang_over_as_ours_do(side: int, ceil: bool) -> None:  # noqa: FBT001 - a parameter of the test
    net = GraphBuilder((side, side + 1, 2))
    net.add("max", MaxPool(3, 2, padding=1, ceil=ceil))
    net.add("sum", AvgPool(3, 2, padding=(1, 0), ceil=ceil, count_padding=True))
    net.add("mean", AvgPool((2, 1), 2, padding=(1, 0), ceil=ceil, count_padding=False))
    net.add("fc", Dense(4))
    graph = net.build()
    state, images = state_of(graph), images_for(graph, 2)
    content = ours.model(graph, to_state_dict(graph, state), {})
    close(run(content, images), get_backend("reference").compile(graph, state, 2, Options()).forward(images))


def test_any_layer_name_can_be_exported() -> None:
    """None collides with the names of constants, of parts of layers, and of the input and output."""
    net = GraphBuilder((4, 4, 2))
    for name in ("zero", "six", "images", "scores", "zero0"):
        net.add(name, Relu(six=name != "zero"))
    net.add("pool/mean", Relu())
    net.add("pool", GlobalAvgPool())
    net.add("pool/flat", Dense(6))
    net.add("fc/flat", Relu())
    net.add("fc", Dense(3))
    graph = net.build()
    state, images = state_of(graph), 9 * images_for(graph, 2)
    content = ours.model(graph, to_state_dict(graph, state), {})
    onnx.checker.check_model(onnx.load_model_from_string(content), full_check=True)
    close(run(content, images), get_backend("reference").compile(graph, state, 2, Options()).forward(images))


def test_the_file_says_what_it_is() -> None:
    graph = models.build("lenet")
    loaded = onnx.load_model_from_string(ours.model(graph, to_state_dict(graph, State(graph, 0)), {"classes": "a,b"}))
    (opset,) = loaded.opset_import
    assert (opset.domain, opset.version) == ("", 13)
    assert {each.key: each.value for each in loaded.metadata_props} == {"classes": "a,b"}
    sizes = [side.dim_param or side.dim_value for side in loaded.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["N", 1, 28, 28]


def test_what_onnx_cannot_say_is_refused_by_layer() -> None:
    net = GraphBuilder((4, 4, 8))
    net.add("around", LocalResponseNorm(size=4))
    net.add("fc", Dense(2))
    graph = net.build()
    with pytest.raises(ours.ExportError, match="layer around: ONNX needs"):
        ours.model(graph, to_state_dict(graph, State(graph, 0)), {})
