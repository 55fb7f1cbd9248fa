"""Compares dense layers of the core with the BLAS of numpy. For information only: training always uses the core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from phone_agent import models
from phone_agent.backends.cpu import CpuBackend
from phone_agent.contract.tune import TuneRequest
from phone_agent.device.step_timer import time_steps
from phone_agent.nn.graph import Dense, Graph, GraphBuilder
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.tune.search import Row

RUNS = 5


def compare(request: TuneRequest, threads: int) -> Iterator[Row]:
    shape = _largest_dense(models.build(request.model))
    if shape is None:
        return
    features, units = shape
    layers = f"3 layers, {features} x {units}"
    for name, seconds in (
        ("core", _core_step_s(features, units, request.batch, threads)),
        ("numpy BLAS", _blas_step_s(features, units, request.batch)),
    ):
        yield {"part": "dense", "what": f"{layers}, {name}", "step_s": seconds}


def _largest_dense(graph: Graph) -> tuple[int, int] | None:
    weights = [
        (parameter.shape[0], parameter.shape[1])
        for node in graph.nodes
        if isinstance(node.layer, Dense)
        for parameter in node.parameters
        if parameter.name == "weight"
    ]
    return max(weights, key=lambda shape: shape[0] * shape[1], default=None)


def _core_step_s(features: int, units: int, batch: int, threads: int) -> float:
    """A training step of three layers: features -> units -> features -> units."""
    net = GraphBuilder((1, 1, features))
    for number, width in enumerate((units, features, units)):
        net.add(f"dense{number}", Dense(width))
    graph = net.build()
    executable = CpuBackend().compile(graph, State(graph, 0), batch, Options(threads=threads))
    images, labels = np.ones((batch, 1, 1, features), np.float32), np.zeros(batch, np.int64)
    seconds = min(time_steps(lambda: executable.loss_and_gradients(images, labels, 1.0), RUNS))
    executable.close()
    return seconds


def _blas_step_s(features: int, units: int, batch: int) -> float:
    """The same eight matrix products."""
    rng = np.random.default_rng(0)
    x, narrow = rng.standard_normal((2, batch, features)).astype(np.float32)
    a, c = rng.standard_normal((2, features, units)).astype(np.float32) / np.float32(features)
    b = rng.standard_normal((units, features)).astype(np.float32) / np.float32(units)

    def step() -> None:
        hidden = x @ a
        np.matmul(hidden, b, out=narrow)
        gradient = narrow @ c
        np.matmul(narrow.T, gradient)
        back = gradient @ c.T
        np.matmul(hidden.T, back)
        np.matmul(x.T, back @ b.T)

    return min(time_steps(step, RUNS))
