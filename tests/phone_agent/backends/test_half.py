"""Activations in fp16: half the memory, the same training up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.cpu import CpuBackend, CpuExecutable
from phone_agent.contract.errors import AgentError
from phone_agent.core.ops import DType
from phone_agent.nn.graph import Conv, Dense, Graph, GraphBuilder, Relu
from phone_agent.nn.packing import State
from phone_agent.nn.plan import plan
from phone_agent.nn.plan.memory_plan import estimate_memory, largest_batch
from phone_agent.nn.plan.ops import Direction
from phone_agent.nn.plan.options import Options

NETWORKS = (  # together they contain every layer type
    ("lenet", (28, 28, 1), 6),
    ("resnet20", (32, 32, 3), 4),
    ("mobilenet_reduced", (32, 32, 3), 4),
    ("alexnet", (67, 67, 3), 3),
    ("googlenet", (32, 32, 3), 3),
)
GIGABYTES = 2_800_000_000


def _trained(graph: Graph, batch: int, options: Options) -> tuple[CpuExecutable, NDArray[Any], float]:
    rng = np.random.default_rng(3)
    images = rng.normal(0, 1, (batch, *graph.shape)).astype(np.float32)
    state = State(graph, 1)
    executable = CpuBackend().compile(graph, state, batch, options)
    loss = executable.loss_and_gradients(images, rng.integers(0, graph.classes, batch), 1.0, draw=4)
    return executable, state.gradients, loss


@pytest.mark.parametrize(("name", "shape", "batch"), NETWORKS)
def test_gradients_match_fp32_up_to_rounding(name: str, shape: tuple[int, int, int], batch: int) -> None:
    graph = models.build(name, 10, shape)
    _, whole, loss = _trained(graph, batch, Options(threads=2))
    _, half, same = _trained(graph, batch, Options(threads=2, half=True))
    assert same == pytest.approx(loss, rel=5e-3)
    assert same != loss  # something was rounded
    error = np.linalg.norm(half - whole) / np.linalg.norm(whole)
    assert error < 0.05, f"gradients differ by {error:.3f} of their length"


def test_evaluation_scores_match_fp32_up_to_rounding() -> None:
    graph = models.build("resnet20", 10, (32, 32, 3))
    images = np.random.default_rng(5).normal(0, 1, (5, *graph.shape)).astype(np.float32)
    whole, half = (
        CpuBackend().compile(graph, State(graph, 1), 4, Options(threads=2, half=half)).forward(images)
        for half in (False, True)
    )
    np.testing.assert_allclose(half, whole, atol=1e-2 * np.abs(whole).max(), rtol=0)


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_reduced"])
def test_recomputation_gives_the_same_gradients(name: str) -> None:
    graph = models.build(name, 10, (48, 48, 3))
    ample, gradients, loss = _trained(graph, 4, Options(threads=2, half=True, memory_bytes=10**12))
    budget = ample.memory.total - int(ample.memory.arena * 0.2)
    tight, again, same = _trained(graph, 4, Options(threads=2, half=True, memory_bytes=budget))
    assert tight.memory.recomputed
    assert same == loss
    np.testing.assert_allclose(again, gradients, atol=1e-6 * np.abs(gradients).max(), rtol=0)


def test_only_activations_are_fp16() -> None:
    graph = models.build("googlenet", 10, (32, 32, 3))
    whole, half = (plan.make_plan(graph, 2, Options(half=half)) for half in (False, True))
    assert half.training.scores.dtype == half.evaluation.scores.dtype == DType.FP32
    first = next(op for op in half.training.ops if op.name == "conv1.conv")
    image = first.fields["x"]
    assert isinstance(image, dict)
    assert (image["dtype"], first.fields["dtype"]) == (DType.FP32, DType.FP16)
    sizes = {buffer.name: buffer.bytes for buffer in whole.offsets}
    shrunk = {buffer.name for buffer in half.offsets if 2 * buffer.bytes == sizes[buffer.name]}
    kept = {buffer.name for buffer in half.offsets if buffer.bytes == sizes[buffer.name]}
    assert shrunk
    assert shrunk | kept == set(sizes)
    assert not [name for name in shrunk if name.endswith(("gradient", "sums", "argmaxes"))]
    scores = half.lowered.scores.storage.name
    stored = {op.y.storage.name for op in half.lowered.ops}
    assert stored - shrunk == {scores}


@pytest.mark.parametrize(("name", "share"), [("resnet50", 0.55), ("mobilenet_v1", 0.52), ("squeezenet_v1_1", 0.57)])
def test_fp16_halves_the_arena(name: str, share: float) -> None:
    graph = models.build(name)
    whole, half = (estimate_memory(graph, 16, Options(threads=2, half=half)) for half in (False, True))
    assert half.arena < share * whole.arena
    assert half.total - half.arena == pytest.approx(whole.total - whole.arena, rel=0.02)


def test_fp16_nearly_doubles_the_batch() -> None:
    graph = models.build("mobilenet_v1")
    whole, half = (largest_batch(graph, GIGABYTES, Options(threads=2, half=half)) for half in (False, True))
    assert half > 1.75 * whole
    again = plan.make_plan(graph, half, Options(threads=2, half=True))
    assert not [op.name for op in again.training.ops if op.direction == Direction.RECOMPUTE]


def test_fp16_overflow_is_visible_in_the_loss() -> None:
    net = GraphBuilder((4, 4, 1))
    net.add("conv", Conv(3, 1))
    net.add("relu", Relu())
    net.add("fc", Dense(2))
    graph = net.build()
    state = State(graph, 0)
    state.packing.views(state.values)["conv.weight"][...] = 1e5
    images, labels = np.ones((1, *graph.shape), np.float32), np.zeros(1, np.int32)
    options = Options(half=True)
    assert not np.isfinite(CpuBackend().compile(graph, state, 1, options).loss_and_gradients(images, labels, 1.0))


def test_the_reference_backend_rejects_fp16_activations() -> None:
    graph = models.build("lenet")
    with pytest.raises(AgentError, match="does not support fp16 activations"):
        get_backend("reference").compile(graph, State(graph, 0), 1, Options(half=True))
