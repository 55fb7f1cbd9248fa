"""Weights under torchvision's names and in its layouts, so that anyone can compare. Dictionaries of arrays, no files.

Ours are NHWC: convolutions (h, w, in, out), dense layers (in, out) reading an image as h, w, c. There it is
(out, in, h, w), and (out, in) reading c, h, w.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.graph import Conv, Dense, Graph, Layer, Node, Shape
from phone_agent.nn.packing import State, Tensors

COUNTER = ".num_batches_tracked"  # PyTorch counts the batches a normalisation saw, and uses it for nothing here
AUXILIARY = ("AuxLogits.", "aux1.", "aux2.")  # heads that networks of ours do without
SHOWN = 5
NUMBERS = "biuf"  # numpy's kinds that become float32 as they are


class WeightsError(AgentError):
    """Weights of another network; names the tensors."""

    code = ErrorCode.BAD_WEIGHTS


def to_state_dict(graph: Graph, state: State) -> dict[str, NDArray[Any]]:
    """One copy, in the order layers run."""
    return {name: _theirs(layer, ours, fed) for name, layer, fed, ours in _tensors(graph, state)}


def from_state_dict(graph: Graph, state: State, weights: Mapping[str, Any]) -> None:
    """Into the state's values and statistics, all of them or none. Momenta are left alone."""
    _load(graph, state, _needed(graph, weights), replaced=())


def load_pretrained(
    graph: Graph, state: State, weights: Mapping[str, Any], *, new_head: bool = False
) -> tuple[str, ...]:
    """The same, but the head may be absent or of another shape, as for other classes; or not wanted.

    It then keeps the values it has, all of it, and its tensors are named in the answer.
    """
    loaded = _needed(graph, weights)
    wanted = {name: _their_shape(layer, ours) for name, layer, _, ours in _tensors(graph, state)}
    tensors = [f"{node.name}.{each.name}" for node in _head(graph) for each in (*node.parameters, *node.statistics)]
    fits = all(name in loaded and loaded[name].shape == wanted[name] for name in tensors)
    replaced = () if fits and not new_head else tuple(tensors)
    _load(graph, state, {name: value for name, value in loaded.items() if name not in replaced}, replaced)
    return replaced


def _head(graph: Graph) -> list[Node]:
    """The layers that have as many channels as there are classes: the last ones that make channels of their own, and
    all from there to the scores."""
    found: set[int] = set()
    ahead = {len(graph.nodes) - 1}
    while ahead:
        position = ahead.pop()
        node = graph.nodes[position]
        found.add(position)
        if not _makes_channels(node, _fed(graph, node)):
            ahead.update(feed for feed in node.inputs if feed >= 0)
    return [graph.nodes[position] for position in sorted(found)]


def _makes_channels(node: Node, fed: Shape) -> bool:
    """Others have those of what they read."""
    return isinstance(node.layer, Dense) or (isinstance(node.layer, Conv) and not node.layer.is_depthwise(fed))


def _theirs(layer: Layer, ours: NDArray[Any], fed: Shape) -> NDArray[Any]:
    """A copy. `fed` is the shape of the layer's input."""
    theirs = ours
    if isinstance(layer, Conv) and ours.ndim == 4:
        theirs = ours.transpose(3, 2, 0, 1)
    elif isinstance(layer, Dense) and ours.ndim == 2:
        theirs = ours.reshape(*_as_image(fed), -1).transpose(3, 2, 0, 1)
    return theirs.copy().reshape(_their_shape(layer, ours))


def _their_shape(layer: Layer, ours: NDArray[Any]) -> Shape:
    if isinstance(layer, Conv) and ours.ndim == 4:
        height, width, inputs, outputs = ours.shape
        return outputs, inputs, height, width
    return ours.shape[::-1] if isinstance(layer, Dense) else ours.shape


def _ours(layer: Layer, of_theirs: NDArray[Any], fed: Shape) -> NDArray[Any]:
    if isinstance(layer, Conv) and of_theirs.ndim == 4:
        return of_theirs.transpose(2, 3, 1, 0)
    if isinstance(layer, Dense) and of_theirs.ndim == 2:
        height, width, channels = _as_image(fed)
        image = of_theirs.reshape(-1, channels, height, width).transpose(2, 3, 1, 0)
        return image.reshape(of_theirs.shape[::-1])
    return of_theirs


def _needed(graph: Graph, weights: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """A network of somebody's own may have layers that are called as those which others do without."""
    own = {f"{node.name}.{each.name}" for node in graph.nodes for each in (*node.parameters, *node.statistics)}
    return {name: np.asarray(value) for name, value in weights.items() if name in own or not _needless(name)}


def _load(graph: Graph, state: State, loaded: dict[str, NDArray[Any]], replaced: tuple[str, ...]) -> None:
    tensors = [each for each in _tensors(graph, state) if each[0] not in replaced]
    _check({name: _their_shape(layer, ours) for name, layer, _, ours in tensors}, loaded)
    for name, layer, fed, ours in tensors:
        ours[...] = _ours(layer, loaded[name], fed)


def _tensors(graph: Graph, state: State) -> Iterator[tuple[str, Layer, Shape, NDArray[Any]]]:
    kept: Tensors = state.packing.views(state.values) | state.statistics_packing.views(state.statistics)
    for node in graph.nodes:
        for each in (*node.parameters, *node.statistics):
            name = f"{node.name}.{each.name}"
            yield name, node.layer, _fed(graph, node), kept[name]


def _fed(graph: Graph, node: Node) -> Shape:
    return graph.shape if node.inputs[0] < 0 else graph.nodes[node.inputs[0]].shape


def _as_image(shape: Shape) -> tuple[int, int, int]:
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (1, 1, prod(shape))


def _needless(name: str) -> bool:
    return name.endswith(COUNTER) or name.startswith(AUXILIARY)


def _check(wanted: dict[str, Shape], loaded: dict[str, NDArray[Any]]) -> None:
    wrong = [
        f"{name} is {loaded[name].shape}, not {shape}"
        for name, shape in wanted.items()
        if name in loaded and loaded[name].shape != shape
    ]
    odd = [name for name, value in loaded.items() if value.dtype.kind not in NUMBERS]
    problems = [
        _told("missing", [name for name in wanted if name not in loaded]),
        _told("unexpected", [name for name in loaded if name not in wanted]),
        _told("of another shape", wrong),
        _told("not of numbers", odd),
        _told("not all finite", [name for name in loaded if name not in odd and not np.isfinite(loaded[name]).all()]),
    ]
    if any(problems):
        raise WeightsError(f"these are not this network's weights: {'; '.join(filter(None, problems))}")


def _told(what: str, names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}: {', '.join(names[:SHOWN])}{more}" if names else ""
