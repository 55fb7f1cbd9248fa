"""What a run starts from: its network, the values it starts with, and which of them stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State, backward_order
from phone_agent.nn.weights import load_pretrained
from phone_agent.train import checkpoint

Allreduce = Callable[[NDArray[np.float32]], None]  # sums over all ranks, in place and in full precision


class FreezeError(AgentError):
    """A pattern that freezes nothing, or all there is."""

    code = ErrorCode.BAD_REQUEST


def build_graph(directory: Path, spec: RunSpec) -> Graph:
    """`directory` holds the file that was staged with the run, where the network is the user's own. It knows what of it
    is frozen."""
    name = f"{directory / spec.model_file}:{spec.model}" if spec.model_file else spec.model
    graph = models.build(name, spec.data.classes, spec.data.input_shape)
    return freeze(graph, spec.freeze)


def initial_state(directory: Path, spec: RunSpec, graph: Graph, rank: int, allreduce: Allreduce) -> State:
    """From the seed; or from given weights, which only rank 0 has as a file: the others get them from it, summed with
    their nothing. So they travel once to the rack, and between the phones at its full speed."""
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
    return replace(graph, frozen=frozenset(frozen(graph, patterns)))


def frozen(graph: Graph, patterns: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters in layers that a pattern fits: 'conv1', 'layer1.*', '*.bias'."""
    names = [name for name, _ in backward_order(graph)]
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            near = get_close_matches(pattern, [node.name for node in graph.nodes if node.parameters], n=3, cutoff=0.3)
            hint = f"; there is {', '.join(near)}" if near else ""
            raise FreezeError(f"no layer of {graph.name} that learns fits '{pattern}'{hint}")
    found = tuple(name for name in names if any(_fits(name, pattern) for pattern in patterns))
    if len(found) == len(names):
        raise FreezeError(f"{', '.join(patterns)} freezes every layer of {graph.name}: nothing would learn")
    return found


def _fits(name: str, pattern: str) -> bool:
    """A parameter's own name, or that of any part it is in: 'layer1' is 'layer1.0.conv1.weight' as well."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))
