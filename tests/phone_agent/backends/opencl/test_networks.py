"""Whole networks on an OpenCL device: losses and gradients match the core and the reference backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.opencl.backend import OpenClBackend
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options
from tests.phone_agent.agreement import batch_of, leave_corners, worst_of

THIRTEEN = {
    "alexnet": 67,
    "googlenet": 32,
    "inception_v3": 75,
    "mobilenet_v1": 32,
    "mobilenet_v2": 32,
    "resnet50": 32,
    "resnet101": 32,
    "resnet152": 32,
    "squeezenet_v1_0": 32,
    "squeezenet_v1_1": 32,
    "mentee": 32,
    "mobilenet_reduced": 32,
    "resnet_reduced": 32,
}
TOLERANCE = 3e-4  # relative to the largest gradient of a parameter, as for the core
DRAWS = 5  # a value that is zero up to rounding may pass a ReLU in one backend only: the best batch counts
# With this many values, some are always near zero, unless they are shifted; likewise in every full-size network.
DEEP = {"inception_v3", "resnet101", "resnet152"}
HALF = 3e-2  # activations have eleven bits
NEAR = 3  # the device may be this many times less accurate than the core
ROUNDING = 1e-6  # smaller errors are chance


def starts(graph: Graph, *kinds: type, large: bool = False) -> list[State]:
    states = [State(graph, 1, kind) for kind in kinds]
    if large or graph.name in DEEP:
        return [leave_corners(graph, state, down=not graph.name.startswith("mobilenet")) for state in states]
    return states


def agrees(graph: Graph, batch: int, options: Options, tolerance: float = TOLERANCE, *, large: bool = False) -> None:
    """Loss, every gradient, running statistics and scores match the core."""
    ours, theirs = starts(graph, np.float32, np.float32, large=large)
    device = OpenClBackend().compile(graph, ours, batch, options)
    wanted = get_backend("cpu").compile(graph, theirs, batch, replace(options, winograd=False))
    rough = max(1e-4, 0.1 * tolerance)
    errors = []
    for seed in range(DRAWS):
        images, labels = batch_of(graph, batch, seed)
        ours.gradients[:] = np.nan
        loss = wanted.loss_and_gradients(images, labels, 0.5, draw=9)
        assert device.loss_and_gradients(images, labels, 0.5, draw=9) == pytest.approx(loss, rel=0.1 * tolerance)
        errors.append(worst_of(ours, theirs))
        np.testing.assert_allclose(ours.statistics, theirs.statistics, atol=rough, rtol=rough)
        scores = wanted.forward(images)
        np.testing.assert_allclose(device.forward(images), scores, atol=tolerance * np.abs(scores).max(), rtol=0)
        if errors[-1][0] < tolerance:
            return
    pytest.fail(f"largest errors: {errors}")


# Compiling kernels takes most of the time: these three networks cover most kernels.
QUICK = {"mobilenet_reduced", "resnet_reduced", "squeezenet_v1_1"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in THIRTEEN])
def test_loss_and_every_gradient(name: str) -> None:
    """Narrow networks. Sixteen images, since the last batch normalization sees only one pixel per image."""
    side = THIRTEEN[name]
    agrees(models.build(name, 10, (side, side, 3), 0.25), 16, Options())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "mobilenet_reduced" else pytest.mark.slow) for n in THIRTEEN]
)
def test_as_accurate_as_the_core(name: str) -> None:
    """Both accumulate rounding errors. A bug on the device would affect only the device."""
    side = THIRTEEN[name]
    graph = models.build(name, 10, (side, side, 3), 0.5)
    kinds = {"reference": np.float64, "cpu": np.float32, "opencl": np.float32}
    states = dict(zip(kinds, starts(graph, *kinds.values()), strict=True))
    made = {each: get_backend(each).compile(graph, states[each], 6, Options(winograd=False)) for each in kinds}
    distances = []
    for seed in range(DRAWS):
        images, labels = batch_of(graph, 6, seed)
        for each, kind in kinds.items():
            made[each].loss_and_gradients(images.astype(kind), labels, 0.5, draw=9)
        distances.append([worst_of(states[each], states["reference"])[0] for each in ("opencl", "cpu")])
        ours, core = np.min(distances, axis=0)
        if ours < NEAR * max(core, ROUNDING):
            return
    pytest.fail(f"distances of device and core: {distances}")


@pytest.mark.slow
@pytest.mark.parametrize("name", THIRTEEN)
def test_loss_and_every_gradient_as_published(name: str) -> None:
    agrees(models.build(name), 4, Options(threads=2), large=True)


def test_recomputed_layers() -> None:
    graph = models.build("resnet20", 10, (32, 32, 3))
    options = Options(memory_bytes=estimate_memory(graph, 16).total - 1_000_000)
    assert estimate_memory(graph, 16, options).recomputed
    agrees(graph, 16, options)


def test_label_smoothing() -> None:
    agrees(models.build("lenet", 10, (28, 28, 1)), 5, Options(label_smoothing=0.1))


def test_fp16_activations() -> None:
    """Core and device round alike, except for the last bit of some values; losses match fp32 to a few digits."""
    graph = models.build("resnet_reduced", 10, (32, 32, 3))
    agrees(graph, 8, Options(half=True), HALF)
    images, labels = batch_of(graph, 8)
    half, whole = (OpenClBackend().compile(graph, State(graph, 1), 8, Options(half=half)) for half in (True, False))
    assert half.memory.arena < 0.8 * whole.memory.arena
    loss = whole.loss_and_gradients(images, labels, 1.0)
    assert half.loss_and_gradients(images, labels, 1.0) == pytest.approx(loss, rel=HALF)
