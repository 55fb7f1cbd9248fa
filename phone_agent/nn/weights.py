"""Weights in torchvision's names and layouts, as dictionaries of arrays.

Our layout is NHWC: convolutions (h, w, in, out), dense layers (in, out) with images flattened as h, w, c. torchvision
has (out, in, h, w), and (out, in) with images flattened as c, h, w.
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

COUNTER = ".num_batches_tracked"  # PyTorch's count of batches, which is unused with a fixed momentum
AUXILIARY = ("AuxLogits.", "aux1.", "aux2.")  # auxiliary heads, which our networks do not have
SHOWN = 5
NUMERIC_KINDS = "biuf"  # numpy kinds that convert to float32


class WeightsError(AgentError):
    """The weights do not match the network. The message names the tensors."""

    code = ErrorCode.BAD_WEIGHTS


def to_state_dict(graph: Graph, state: State) -> dict[str, NDArray[Any]]:
    """A copy of all tensors, in execution order."""
    return {name: _to_torch(layer, ours, shape) for name, layer, shape, ours in _tensors(graph, state)}


def from_state_dict(graph: Graph, state: State, weights: Mapping[str, Any]) -> None:
    """Load all values and statistics, or none if anything does not match. Momenta stay as they are."""
    _load(graph, state, _relevant(graph, weights), replaced=())


def load_pretrained(
    graph: Graph, state: State, weights: Mapping[str, Any], *, new_head: bool = False
) -> tuple[str, ...]:
    """Load pretrained weights, for fine-tuning. The head may be missing or have another shape, as for other classes.

    In that case, or with `new_head`, the whole head keeps its current values. Returns the names of its tensors.
    """
    loaded = _relevant(graph, weights)
    wanted = {name: _torch_shape(layer, ours) for name, layer, _, ours in _tensors(graph, state)}
    tensors = [f"{node.name}.{each.name}" for node in _head(graph) for each in (*node.parameters, *node.statistics)]
    fits = all(name in loaded and loaded[name].shape == wanted[name] for name in tensors)
    replaced = () if fits and not new_head else tuple(tensors)
    _load(graph, state, {name: value for name, value in loaded.items() if name not in replaced}, replaced)
    return replaced


def _head(graph: Graph) -> list[Node]:
    """The layers with one channel per class: the last layers that change the number of channels, and all after them."""
    found: set[int] = set()
    ahead = {len(graph.nodes) - 1}
    while ahead:
        position = ahead.pop()
        node = graph.nodes[position]
        found.add(position)
        if not _changes_channels(node, _input_shape(graph, node)):
            ahead.update(feed for feed in node.inputs if feed >= 0)
    return [graph.nodes[position] for position in sorted(found)]


def _changes_channels(node: Node, input_shape: Shape) -> bool:
    """Whether the layer may have other channels than its input."""
    return isinstance(node.layer, Dense) or (isinstance(node.layer, Conv) and not node.layer.is_depthwise(input_shape))


def _to_torch(layer: Layer, ours: NDArray[Any], input_shape: Shape) -> NDArray[Any]:
    """A copy in torchvision's layout."""
    theirs = ours
    if isinstance(layer, Conv) and ours.ndim == 4:
        theirs = ours.transpose(3, 2, 0, 1)
    elif isinstance(layer, Dense) and ours.ndim == 2:
        theirs = ours.reshape(*_as_image(input_shape), -1).transpose(3, 2, 0, 1)
    return theirs.copy().reshape(_torch_shape(layer, ours))


def _torch_shape(layer: Layer, ours: NDArray[Any]) -> Shape:
    if isinstance(layer, Conv) and ours.ndim == 4:
        height, width, inputs, outputs = ours.shape
        return outputs, inputs, height, width
    return ours.shape[::-1] if isinstance(layer, Dense) else ours.shape


def _from_torch(layer: Layer, theirs: NDArray[Any], input_shape: Shape) -> NDArray[Any]:
    if isinstance(layer, Conv) and theirs.ndim == 4:
        return theirs.transpose(2, 3, 1, 0)
    if isinstance(layer, Dense) and theirs.ndim == 2:
        height, width, channels = _as_image(input_shape)
        image = theirs.reshape(-1, channels, height, width).transpose(2, 3, 1, 0)
        return image.reshape(theirs.shape[::-1])
    return theirs


def _relevant(graph: Graph, weights: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Without counters and auxiliary heads, unless the network itself has layers with such names."""
    own = {f"{node.name}.{each.name}" for node in graph.nodes for each in (*node.parameters, *node.statistics)}
    return {name: np.asarray(value) for name, value in weights.items() if name in own or not _is_ignored(name)}


def _load(graph: Graph, state: State, loaded: dict[str, NDArray[Any]], replaced: tuple[str, ...]) -> None:
    tensors = [each for each in _tensors(graph, state) if each[0] not in replaced]
    _check({name: _torch_shape(layer, ours) for name, layer, _, ours in tensors}, loaded)
    for name, layer, shape, ours in tensors:
        ours[...] = _from_torch(layer, loaded[name], shape)


def _tensors(graph: Graph, state: State) -> Iterator[tuple[str, Layer, Shape, NDArray[Any]]]:
    views: Tensors = state.packing.views(state.values) | state.statistics_packing.views(state.statistics)
    for node in graph.nodes:
        for each in (*node.parameters, *node.statistics):
            name = f"{node.name}.{each.name}"
            yield name, node.layer, _input_shape(graph, node), views[name]


def _input_shape(graph: Graph, node: Node) -> Shape:
    return graph.shape if node.inputs[0] < 0 else graph.nodes[node.inputs[0]].shape


def _as_image(shape: Shape) -> tuple[int, int, int]:
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (1, 1, prod(shape))


def _is_ignored(name: str) -> bool:
    return name.endswith(COUNTER) or name.startswith(AUXILIARY)


def _check(wanted: dict[str, Shape], loaded: dict[str, NDArray[Any]]) -> None:
    wrong = [
        f"{name} is {loaded[name].shape}, not {shape}"
        for name, shape in wanted.items()
        if name in loaded and loaded[name].shape != shape
    ]
    odd = [name for name, value in loaded.items() if value.dtype.kind not in NUMERIC_KINDS]
    problems = [
        _list_names("missing", [name for name in wanted if name not in loaded]),
        _list_names("unexpected", [name for name in loaded if name not in wanted]),
        _list_names("wrong shape", wrong),
        _list_names("not numeric", odd),
        _list_names(
            "not all finite", [name for name in loaded if name not in odd and not np.isfinite(loaded[name]).all()]
        ),
    ]
    if any(problems):
        raise WeightsError(f"the weights do not match the network: {'; '.join(filter(None, problems))}")


def _list_names(what: str, names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}: {', '.join(names[:SHOWN])}{more}" if names else ""
