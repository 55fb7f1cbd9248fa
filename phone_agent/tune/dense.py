"""Fully connected layers by our core and by numpy's BLAS. Told, not chosen from: training uses the core for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from phone_agent import models
from phone_agent.backends.cpu import CpuBackend
from phone_agent.contract.tune import TuneRequest
from phone_agent.nn.graph import Dense, Graph, GraphBuilder
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.tune.search import Row

RUNS = 5


def compare(request: TuneRequest, threads: int) -> Iterator[Row]:
    shape = _largest(models.build(request.model))
    if shape is None:
        return
    features, units = shape
    what = f"3 layers, {features} x {units}"
    for name, seconds in (
        ("our core", _core(features, units, request.batch, threads)),
        ("numpy's BLAS", _blas(features, units, request.batch)),
    ):
        yield {"part": "dense", "what": f"{what}, {name}", "step_s": seconds}


def _largest(graph: Graph) -> tuple[int, int] | None:
    weights = [
        (parameter.shape[0], parameter.shape[1])
        for node in graph.nodes
        if isinstance(node.layer, Dense)
        for parameter in node.parameters
        if parameter.name == "weight"
    ]
    return max(weights, key=lambda shape: shape[0] * shape[1], default=None)


def _core(features: int, units: int, batch: int, threads: int) -> float:
    """There, back and there again: a step of three layers."""
    net = GraphBuilder((1, 1, features))
    for number, width in enumerate((units, features, units)):
        net.add(f"dense{number}", Dense(width))
    graph = net.build()
    executable = CpuBackend().compile(graph, State(graph, 0), batch, Options(threads=threads))
    images, labels = np.ones((batch, 1, 1, features), np.float32), np.zeros(batch, np.int64)
    seconds = _best(lambda: executable.loss_and_gradients(images, labels, 1.0))
    executable.close()
    return seconds


def _blas(features: int, units: int, batch: int) -> float:
    """The same eight products."""
    source = np.random.default_rng(0)
    x, narrow = source.standard_normal((2, batch, features)).astype(np.float32)
    a, c = source.standard_normal((2, features, units)).astype(np.float32) / np.float32(features)
    b = source.standard_normal((units, features)).astype(np.float32) / np.float32(units)

    def step() -> None:
        there = x @ a
        np.matmul(there, b, out=narrow)
        gradient = narrow @ c
        np.matmul(narrow.T, gradient)
        back = gradient @ c.T
        np.matmul(there.T, back)
        np.matmul(x.T, back @ b.T)

    return _best(step)


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS + 1):
        started = time.monotonic()
        work()
        seconds.append(time.monotonic() - started)
    return min(seconds[1:])
