"""The oracle: every layer in plain numpy, forward and backward side by side. Slow, short, and right.

`x` is a layer's input, `y` its output, `dy` the loss's gradient by `y`. A forward that backward needs something of
returns it as `kept`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from phone_agent.nn.graph import Add, Conv, Dense, Graph, MaxPool, Node, Relu
from phone_agent.nn.packing import State, Tensors

Array = NDArray[Any]
Pair = tuple[Array, Array]  # of a weight and its bias


def windows(x: Array, kernel: int, stride: int) -> Array:
    """Every kernel x kernel window of the images, as a view: (n, rows, columns, kernel, kernel, channels)."""
    n, height, width, channels = x.shape
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    sn, sh, sw, sc = x.strides
    return as_strided(x, (n, rows, columns, kernel, kernel, channels), (sn, sh * stride, sw * stride, sh, sw, sc))


def add_windows(dx: Array, dwindows: Array, stride: int) -> None:
    """The transpose of `windows`: adds each window's gradient back to the pixels it was taken from."""
    _, rows, columns, kernel, _, _ = dwindows.shape
    for i in range(kernel):
        for j in range(kernel):
            dx[:, i : i + rows * stride : stride, j : j + columns * stride : stride] += dwindows[:, :, :, i, j]


def conv_forward(layer: Conv, x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    p = layer.padding
    padded = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0))) if p else x
    view = windows(padded, layer.kernel, layer.stride)
    columns = view.reshape(-1, weight[..., 0].size)  # the copy known as im2col
    y = columns @ weight.reshape(-1, layer.filters) + bias
    return y.reshape(*view.shape[:3], layer.filters), columns


def conv_backward(layer: Conv, dy: Array, columns: Array, x: Array, weight: Array, *, gradients: Pair) -> Array:
    dweight, dbias = gradients
    rows = dy.reshape(-1, layer.filters)
    dbias[...] = rows.sum(axis=0)
    dweight[...] = (columns.T @ rows).reshape(weight.shape)
    dcolumns = rows @ weight.reshape(-1, layer.filters).T
    n, height, width, channels = x.shape
    p = layer.padding
    dpadded = np.zeros((n, height + 2 * p, width + 2 * p, channels), x.dtype)
    add_windows(dpadded, dcolumns.reshape(*dy.shape[:3], layer.kernel, layer.kernel, channels), layer.stride)
    return dpadded[:, p : p + height, p : p + width]


def maxpool_forward(layer: MaxPool, x: Array) -> tuple[Array, Array]:
    view = windows(x, layer.kernel, layer.stride)
    flat = view.reshape(*view.shape[:3], layer.kernel**2, view.shape[5])
    winner = flat.argmax(axis=3)[:, :, :, None]
    return np.take_along_axis(flat, winner, axis=3)[:, :, :, 0], winner


def maxpool_backward(layer: MaxPool, dy: Array, winner: Array, x: Array) -> Array:
    """The whole gradient goes to the first of the largest pixels of a window."""
    n, rows, columns, channels = dy.shape
    flat = np.zeros((n, rows, columns, layer.kernel**2, channels), dy.dtype)
    np.put_along_axis(flat, winner, dy[:, :, :, None], axis=3)
    dx = np.zeros_like(x)
    add_windows(dx, flat.reshape(n, rows, columns, layer.kernel, layer.kernel, channels), layer.stride)
    return dx


def relu_forward(x: Array) -> Array:
    return np.maximum(x, 0)


def relu_backward(dy: Array, x: Array) -> Array:
    return np.where(x > 0, dy, 0)


def dense_forward(x: Array, weight: Array, bias: Array) -> Array:
    y: Array = x.reshape(len(x), -1) @ weight + bias
    return y


def dense_backward(dy: Array, x: Array, weight: Array, *, gradients: Pair) -> Array:
    dweight, dbias = gradients
    dbias[...] = dy.sum(axis=0)
    dweight[...] = x.reshape(len(x), -1).T @ dy
    dx: Array = (dy @ weight.T).reshape(x.shape)
    return dx


def cross_entropy_forward(scores: Array, labels: Array) -> tuple[float, Array]:
    """Mean of -log softmax at the labels, and the softmax. The sum is in double: it is what people compare."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - shifted[np.arange(len(labels)), labels]
    return float(losses.mean(dtype=np.float64)), exponents / total


def cross_entropy_backward(softmax: Array, labels: Array, weight: float) -> Array:
    """Gradient of weight x mean."""
    dscores = softmax.copy()
    dscores[np.arange(len(labels)), labels] -= 1
    dscores *= weight / len(labels)
    return dscores


class ReferenceBackend:
    def compile(self, graph: Graph, state: State, batch: int) -> ReferenceExecutable:  # noqa: ARG002 - takes any batch
        return ReferenceExecutable(graph, state)


class ReferenceExecutable:
    def __init__(self, graph: Graph, state: State) -> None:
        self._graph = graph
        self._values: Tensors = state.packing.views(state.values)
        self._gradients: Tensors = state.packing.views(state.gradients)
        self._outputs: list[Array] = []  # by node; the images last, so that position -1 finds them
        self._kept: dict[str, Array] = {}

    def forward(self, images: Array) -> Array:
        outputs: list[Array] = [*[np.empty(0)] * len(self._graph.nodes), images]
        self._outputs = outputs
        for position, node in enumerate(self._graph.nodes):
            outputs[position] = self._forward(node, *(outputs[feed] for feed in node.inputs))
        return outputs[-2]

    def loss_and_gradients(self, images: Array, labels: Array, weight: float) -> float:
        loss, softmax = cross_entropy_forward(self.forward(images), labels)
        self._backward_all(cross_entropy_backward(softmax, labels, weight))
        return loss

    def _backward_all(self, dscores: Array) -> None:
        nodes = self._graph.nodes
        dys: dict[int, Array] = {len(nodes) - 1: dscores}
        for position in reversed(range(len(nodes))):
            node = nodes[position]
            dxs = self._backward(node, dys.pop(position), *(self._outputs[feed] for feed in node.inputs))
            for feed, dx in zip(node.inputs, dxs, strict=True):
                dys[feed] = dys[feed] + dx if feed in dys else dx  # a layer that feeds two gets both gradients

    def _forward(self, node: Node, x: Array, *more: Array) -> Array:
        layer = node.layer
        match layer:
            case Conv():
                y, self._kept[node.name] = conv_forward(layer, x, *self._of(node, self._values))
            case MaxPool():
                y, self._kept[node.name] = maxpool_forward(layer, x)
            case Relu():
                y = relu_forward(x)
            case Dense():
                y = dense_forward(x, *self._of(node, self._values))
            case Add():
                y = x + more[0]
        return y

    def _backward(self, node: Node, dy: Array, x: Array, *_more: Array) -> tuple[Array, ...]:
        layer, kept = node.layer, self._kept.pop(node.name, np.empty(0))
        match layer:
            case Conv():
                weight, _ = self._of(node, self._values)
                return (conv_backward(layer, dy, kept, x, weight, gradients=self._of(node, self._gradients)),)
            case MaxPool():
                return (maxpool_backward(layer, dy, kept, x),)
            case Relu():
                return (relu_backward(dy, x),)
            case Dense():
                weight, _ = self._of(node, self._values)
                return (dense_backward(dy, x, weight, gradients=self._of(node, self._gradients)),)
            case Add():
                return dy, dy

    @staticmethod
    def _of(node: Node, tensors: Tensors) -> Pair:
        return tensors[f"{node.name}.weight"], tensors[f"{node.name}.bias"]
