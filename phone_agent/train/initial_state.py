"""The initial state of a run: its network, the initial weights, and which of them are frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import RunSpec
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State, backward_order
from phone_agent.nn.weights import load_pretrained
from phone_agent.train import checkpoint

Allreduce = Callable[[NDArray[np.float32]], None]  # sums over all ranks, in place, in full precision


def build_graph(directory: Path, spec: RunSpec) -> Graph:
    """The network, with its frozen layers. `directory` holds the model file if the network is user-defined."""
    name = f"{directory / spec.model_file}:{spec.model}" if spec.model_file else spec.model
    graph = models.build(name, spec.data.classes, spec.data.input_shape)
    return freeze(graph, spec.freeze)


def initial_state(directory: Path, spec: RunSpec, graph: Graph, rank: int, allreduce: Allreduce) -> State:
    """From the seed, or from given weights. Only rank 0 has the weights file; the others receive them by an allreduce
    to which they contribute zeros. So the host sends them once, and the phones share them at full link speed."""
    state = State(graph, spec.seed)
    if spec.weights:
        if rank == 0:
            load_pretrained(graph, state, checkpoint.read(directory / spec.weights).weights)
        for buffer in (state.values, state.statistics):
            if rank != 0:
                buffer[...] = 0
            if buffer.size:
                allreduce(buffer)
    return state


def freeze(graph: Graph, patterns: Sequence[str]) -> Graph:
    return replace(graph, frozen=frozenset(frozen_parameters(graph, patterns)))


def frozen_parameters(graph: Graph, patterns: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters that match a pattern: 'conv1', 'layer1.*', '*.bias'."""
    names = [name for name, _ in backward_order(graph)]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            near = get_close_matches(pattern, [node.name for node in graph.nodes if node.parameters], n=3, cutoff=0.3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise BadRequestError(f"no trainable layer of {graph.name} matches '{pattern}'{hint}")
    found = tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns))
    if len(found) == len(names):
        raise BadRequestError(f"{', '.join(patterns)} freezes every layer of {graph.name}: nothing is left to train")
    return found


def _matches(name: str, pattern: str) -> bool:
    """Matches the parameter's name or that of any enclosing module: 'layer1' matches 'layer1.0.conv1.weight'."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))
