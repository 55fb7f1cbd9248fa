"""Export a model to ONNX: NCHW images in, class scores out, dynamic batch size.

Weights use torchvision layouts, which are those of ONNX. Pooling windows that extend over an edge become explicit
padding, because the meaning of `ceil_mode` has changed between runtimes. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator import protobuf as pb
from phone_agent.api.models import (
    Add,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    Graph,
    LocalResponseNorm,
    MaxPool,
    Node,
    Relu,
    Shape,
    as_pair,
)
from phone_agent.contract.errors import AgentError, ErrorCode

OPSET = 13  # from 2020: has all these operators unchanged, and old runtimes on phones support it
IR_VERSION = 7
FLOAT = 1
INPUT, OUTPUT, BATCH = "images", "scores", "N"

Attribute = int | float | Sequence[int]


class ExportError(AgentError):
    """A layer that ONNX cannot represent."""

    code = ErrorCode.BAD_REQUEST


def model(graph: Graph, weights: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> bytes:
    """The encoded model. `about` becomes metadata."""
    body = _Body(graph, weights)
    parts = [
        pb.integer(1, IR_VERSION),
        pb.text(2, "clusterctl"),
        pb.data(7, body.encoded()),
        pb.data(8, pb.text(1, "") + pb.integer(2, OPSET)),
        *(pb.data(14, pb.text(1, key) + pb.text(2, value)) for key, value in about.items()),
    ]
    return b"".join(parts)


@dataclass(frozen=True)
class _Pool:
    """Window and explicit padding of a pooling layer."""

    kernel: tuple[int, int]
    stride: int
    pads: tuple[int, int, int, int]  # top, left, bottom, right

    @classmethod
    def of(cls, layer: MaxPool | AvgPool, image: Shape, places: Shape) -> _Pool:
        kernel, near = as_pair(layer.kernel), as_pair(layer.padding)
        far = [max(0, (places[side] - 1) * layer.stride + kernel[side] - near[side] - image[side]) for side in range(2)]
        return cls(kernel, layer.stride, (*near, far[0], far[1]))

    @property
    def attributes(self) -> dict[str, Attribute]:
        return {"kernel_shape": self.kernel, "strides": (self.stride, self.stride), "pads": self.pads}


class _Body:
    """Builds the graph. Names cannot collide: outputs of layers start with a slash, names of weights contain a dot, and
    all others have neither."""

    def __init__(self, graph: Graph, weights: Mapping[str, NDArray[Any]]) -> None:
        self._graph, self._weights = graph, weights
        self._nodes: list[bytes] = []
        self._constants: dict[str, NDArray[np.float32]] = {}
        self._names = {-1: INPUT}
        for position, node in enumerate(graph.nodes):
            self._names[position] = self._layer(node, [self._names[feed] for feed in node.inputs])
        self._finish(self._names[len(graph.nodes) - 1])

    def encoded(self) -> bytes:
        height, width, channels = self._graph.shape
        parts = [
            *(pb.data(1, node) for node in self._nodes),
            pb.text(2, self._graph.name or "network"),
            *(pb.data(5, _tensor(name, value)) for name, value in self._constants.items()),
            pb.data(11, _described(INPUT, (BATCH, channels, height, width))),
            pb.data(12, _described(OUTPUT, (BATCH, self._graph.classes))),
        ]
        return b"".join(parts)

    def _layer(self, node: Node, feeds: list[str]) -> str:  # noqa: C901, PLR0911 - one case per layer type
        fed = self._graph.shape if node.inputs[0] < 0 else self._graph.nodes[node.inputs[0]].shape
        name = f"/{node.name}"
        match node.layer:
            case Conv() as layer:
                return self._op("Conv", name, [*feeds, *self._learned(node)], **_convolution(layer))
            case MaxPool() as layer:
                return self._op("MaxPool", name, feeds, **_Pool.of(layer, fed, node.shape).attributes)
            case AvgPool() as layer:
                counted = int(layer.count_padding)
                window = _Pool.of(layer, fed, node.shape).attributes
                return self._op("AveragePool", name, feeds, count_include_pad=counted, **window)
            case GlobalAvgPool():
                return self._flat(self._op("GlobalAveragePool", self._internal("mean"), feeds), name)
            case BatchNorm() as layer:
                inputs = [*feeds, *self._learned(node), *self._kept(node)]
                return self._op("BatchNormalization", name, inputs, epsilon=layer.epsilon)
            case Relu(six=True):
                bounds = [self._constant("zero", 0.0), self._constant("six", 6.0)]
                return self._op("Clip", name, [*feeds, *bounds])
            case Relu():
                return self._op("Relu", name, feeds)
            case LocalResponseNorm() as layer:
                return self._response(node, layer, feeds, fed)
            case Dropout():
                return feeds[0]
            case Add():
                return self._op("Add", name, feeds)
            case Concat():
                return self._op("Concat", name, feeds, axis=1)
            case Dense():
                flat = self._flat(feeds[0], self._internal("flat")) if len(fed) == 3 else feeds[0]
                return self._op("Gemm", name, [flat, *self._learned(node)], transB=1)

    def _response(self, node: Node, layer: LocalResponseNorm, feeds: list[str], fed: Shape) -> str:
        if layer.size % 2 == 0 or len(fed) != 3:
            raise ExportError(f"layer {node.name}: ONNX needs an image and an odd size for LRN")
        rules = {"alpha": layer.alpha, "beta": layer.beta, "bias": layer.k}
        return self._op("LRN", f"/{node.name}", feeds, size=layer.size, **rules)

    def _finish(self, last: str) -> None:
        """Flatten the scores to one row per image."""
        self._op("Flatten", OUTPUT, [last], axis=1)

    def _flat(self, of: str, name: str) -> str:
        return self._op("Flatten", name, [of], axis=1)

    def _internal(self, purpose: str) -> str:
        """The name of the next node, if it is only a part of a layer."""
        return f"{purpose}{len(self._nodes)}"

    def _op(self, kind: str, result: str, inputs: Sequence[str], **attributes: Attribute) -> str:
        parts = [
            *(pb.text(1, name) for name in inputs),
            pb.text(2, result),
            pb.text(3, result),
            pb.text(4, kind),
            *(pb.data(5, _attribute(name, value)) for name, value in attributes.items()),
        ]
        self._nodes.append(b"".join(parts))
        return result

    def _learned(self, node: Node) -> list[str]:
        return [self._weight(f"{node.name}.{each.name}") for each in node.parameters]

    def _kept(self, node: Node) -> list[str]:
        return [self._weight(f"{node.name}.{each.name}") for each in node.statistics]

    def _weight(self, name: str) -> str:
        self._constants[name] = np.ascontiguousarray(self._weights[name], "<f4")
        return name

    def _constant(self, name: str, value: float) -> str:
        self._constants[name] = np.array(value, "<f4")
        return name


def _convolution(layer: Conv) -> dict[str, Attribute]:
    return {
        "kernel_shape": as_pair(layer.kernel),
        "strides": (layer.stride, layer.stride),
        "pads": as_pair(layer.padding) * 2,
        "dilations": (layer.dilation, layer.dilation),
        "group": layer.groups,
    }


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        return pb.text(1, name) + pb.integer(3, value) + pb.integer(20, 2)
    if isinstance(value, float):
        return pb.text(1, name) + pb.single(2, value) + pb.integer(20, 1)
    return pb.text(1, name) + b"".join(pb.integer(8, each) for each in value) + pb.integer(20, 7)


def _tensor(name: str, value: NDArray[np.float32]) -> bytes:
    shape = b"".join(pb.integer(1, side) for side in value.shape)
    return shape + pb.integer(2, FLOAT) + pb.text(8, name) + pb.data(9, value.reshape(-1).view(np.uint8).data)


def _described(name: str, shape: Sequence[int | str]) -> bytes:
    sizes = (pb.text(2, side) if isinstance(side, str) else pb.integer(1, side) for side in shape)
    kind = pb.integer(1, FLOAT) + pb.data(2, b"".join(pb.data(1, size) for size in sizes))
    return pb.text(1, name) + pb.data(2, pb.data(1, kind))
