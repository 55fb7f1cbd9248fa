"""Loss, gradients and running statistics of every network against PyTorch, from the same weights.

The baseline is PyTorch in double precision. The reference backend, also in double precision, must agree up to rounding.
In single precision even PyTorch accumulates rounding errors through a hundred layers; the core may not be much worse.

Errors are relative to the largest gradient of a layer, weights and biases together (a bias that a later batch
normalization cancels has only rounding errors); likewise for statistics. The largest error is printed: run with -rP.

A value within rounding of the corner of a ReLU may fall on either side, which changes everything that depends on it. It
is rare here (see `start`), so the best of several random batches counts. A bug affects all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.reference_layers import keep_mask
from phone_agent.nn.graph import Dropout, Graph, Node
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from tests.phone_agent.agreement import leave_corners

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from benchmarks import torch_peer  # noqa: E402 - needs torch

pytestmark = pytest.mark.slow

Array = NDArray[Any]
SEEDS = (7, 17, 27)  # of random images
DRAW = 12345  # seeds dropout
CLASSES = 10
ORACLE = 1e-9  # largest error of the reference backend
CORE = 5e-5  # largest error of the core, or twice the error of PyTorch if that is larger


@dataclass(frozen=True)
class Case:
    """A network with small images for speed, or as published."""

    name: str
    side: int
    batch: int = 4
    classes: int = CLASSES

    def graph(self) -> Graph:
        return models.build(self.name, self.classes, (self.side, self.side, models.model(self.name).shape[2]))

    def __str__(self) -> str:
        return f"{self.name}-{self.side}"


SMALL = {"alexnet": 67, "inception_v3": 107, "lenet": 28, "mentee": 32, "resnet20": 32}
CASES = [Case(name, SMALL.get(name, 64 if models.model(name).classes == 1000 else 32)) for name in models.NAMES]
PUBLISHED = [
    Case(name, models.model(name).shape[0], batch=2, classes=1000)
    for name in ("googlenet", "mobilenet_v1", "mobilenet_v2", "resnet50", "squeezenet_v1_1")
]


@dataclass(frozen=True)
class Outcome:
    """Result of a training step by name, in our layout. `scores`: of an evaluation after it."""

    loss: float
    gradients: dict[str, Array]
    statistics: dict[str, Array]
    scores: Array

    def error(self, right: Outcome) -> tuple[float, str]:
        """The largest error, and where it is."""
        return max(
            (abs(self.loss - right.loss) / abs(right.loss), "loss"),
            (_error(self.scores, right.scores, np.abs(right.scores).max()), "scores"),
            *_errors(self.gradients, right.gradients),
            *_errors(self.statistics, right.statistics),
        )


def _errors(ours: dict[str, Array], right: dict[str, Array]) -> list[tuple[float, str]]:
    assert ours.keys() == right.keys()
    largest: dict[str, float] = {}
    for name, value in right.items():
        layer = name.rpartition(".")[0]
        largest[layer] = max(largest.get(layer, 0.0), float(np.abs(value).max()))
    return [(_error(ours[name], right[name], largest[name.rpartition(".")[0]]), name) for name in right]


def _error(ours: Array, right: Array, largest: float) -> float:
    return float(np.abs(ours - right).max() / largest)


def samples(graph: Graph, batch: int, seed: int) -> tuple[Array, Array]:
    made = np.random.default_rng(seed)
    return made.normal(size=(batch, *graph.shape)), made.integers(0, graph.classes, batch)


def start(graph: Graph, dtype: type) -> State:
    """The same values in either precision; biases and scales are not 0 and 1, which may hide bugs."""
    state = State(graph, seed=5, dtype=dtype)
    state.values[...] = State(graph, seed=5).values
    state.values += (0.02 * np.random.default_rng(8).normal(size=len(state.values))).astype(np.float32)
    return leave_corners(graph, state)


def ours(case: Case, name: str, dtype: type, seed: int) -> Outcome:
    graph = case.graph()
    state = start(graph, dtype)
    images, labels = samples(graph, case.batch, seed)
    executable = get_backend(name).compile(graph, state, case.batch, Options(threads=2))
    loss = executable.loss_and_gradients(images.astype(dtype), labels, 1.0, draw=DRAW)
    gradients = state.packing.views(state.gradients)
    statistics = state.statistics_packing.views(state.statistics)
    return Outcome(loss, gradients, statistics, executable.forward(images.astype(dtype)))


def theirs(case: Case, dtype: type, seed: int) -> Outcome:
    graph = case.graph()
    state = start(graph, dtype)
    images, labels = samples(graph, case.batch, seed)
    net = torch_peer.torch_net(graph, state, _masks(graph)).train()
    seen = torch_peer.images_to_torch(images.astype(dtype))
    loss = torch.nn.functional.cross_entropy(net(seen), torch.from_numpy(labels))
    loss.backward()
    gradients, statistics = torch_peer.gradients(net, graph), torch_peer.statistics(net)
    whole = torch_peer.torch_net(graph, state, "off")
    whole.load_state_dict(net.state_dict())
    with torch.no_grad():
        return Outcome(loss.item(), gradients, statistics, whole.eval()(seen).numpy())


def _masks(graph: Graph) -> torch_peer.Masks:
    positions = {node.name: position for position, node in enumerate(graph.nodes)}

    def mask(node: Node, batch: int) -> Array:
        assert isinstance(node.layer, Dropout)
        shape = (batch, *node.shape)
        kept = keep_mask(int(np.prod(shape)), node.layer.rate, DRAW, positions[node.name]).reshape(shape)
        return kept / (1 - node.layer.rate)

    return mask


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_matches_pytorch(case: Case) -> None:
    error, where = ours(case, "reference", np.float64, SEEDS[0]).error(theirs(case, np.float64, SEEDS[0]))
    print(f"{case}: oracle {error:.1e} ({where})")  # noqa: T201 - the number is the purpose of the test
    assert error < ORACLE


@pytest.mark.parametrize("case", [*CASES, *PUBLISHED], ids=str)
def test_core_is_as_accurate_as_pytorch(case: Case) -> None:
    core, own = [], []
    for seed in SEEDS:
        right = theirs(case, np.float64, seed)
        core.append(ours(case, "cpu", np.float32, seed).error(right))
        own.append(theirs(case, np.float32, seed).error(right))
        if min(core)[0] < CORE:
            break
    (error, where), (least, _) = min(core), min(own)
    print(f"{case}: core {error:.1e} ({where}), PyTorch {least:.1e}; {len(core)} draws")  # noqa: T201
    assert error < max(CORE, 2 * least)
