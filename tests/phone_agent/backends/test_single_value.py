"""Batch normalization over a single value: PyTorch refuses it, and here no backend learns statistics from it."""

from __future__ import annotations

import numpy as np
import pytest

from phone_agent.backends import get_backend
from phone_agent.nn.graph import BatchNorm, Conv, Dense, Graph, GraphBuilder, Relu
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options


def network() -> Graph:
    """One normalization of each kind: fused into a convolution, into a depthwise one, and alone."""
    net = GraphBuilder((4, 4, 3))
    net.add("pixels", Conv(8, 3, padding=1, bias=False))
    net.add("over16", BatchNorm())
    net.add("reduce", Conv(16, 4, bias=False))
    net.add("after_conv", BatchNorm())
    net.add("relu", Relu())
    net.add("depthwise", Conv(16, 1, groups=16, bias=False))
    net.add("after_depthwise", BatchNorm())
    net.add("fc", Dense(12))
    net.add("after_dense", BatchNorm())
    net.add("scores", Dense(3))
    return net.build()


@pytest.mark.parametrize("name", ["reference", "cpu", "opencl", "hybrid"])
@pytest.mark.parametrize("images", [1, 2])
def test_running_statistics_need_two_values(name: str, images: int) -> None:
    graph = network()
    state = State(graph, 1)
    before = {key: view.copy() for key, view in state.statistics_packing.views(state.statistics).items()}
    draw = np.random.default_rng(3)
    batch = draw.standard_normal((images, *graph.shape)).astype(np.float32)
    executable = get_backend(name).compile(graph, state, images, Options(gpu_share=1.0))
    for _ in range(20):
        executable.loss_and_gradients(batch, np.zeros(images, np.int64), 1.0)
    after = state.statistics_packing.views(state.statistics)
    changed = {key.partition(".")[0] for key in after if not np.array_equal(before[key], after[key])}
    single = {"after_conv", "after_depthwise", "after_dense"} if images == 1 else set()
    assert changed == {"over16", "after_conv", "after_depthwise", "after_dense"} - single
    assert np.isfinite(state.gradients).all()


def test_torch_refuses_a_single_value() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    norm = torch.nn.BatchNorm2d(3)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        norm(torch.zeros(1, 3, 1, 1))
    norm(torch.zeros(network().min_batch, 3, 1, 1))
