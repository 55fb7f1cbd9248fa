"""What a network is: layers, who feeds whom, and the shape of everything. No arithmetic, no numpy.

Images are NHWC; a shape here leaves the batch out: (height, width, channels) or (features,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from phone_agent.errors import AgentError

Shape = tuple[int, ...]


class GraphError(AgentError):
    """A layer that cannot be; the message names it."""


@dataclass(frozen=True)
class Parameter:
    """One tensor to learn. Weights start uniform within +-sqrt(gain / fan_in), biases (gain 0) at zero."""

    name: str
    shape: Shape
    fan_in: int
    gain: float

    @property
    def size(self) -> int:
        return prod(self.shape)


class _NothingToLearn:
    def parameters(self, *_: Shape) -> tuple[Parameter, ...]:
        return ()


HE = 6.0  # variance 2 / fan_in: for layers followed by a ReLU
GLOROT = 3.0  # variance 1 / fan_in: gentler, for networks without normalisation
UNDECIDED = 0.03  # for the layer that feeds the loss: all classes start about equally likely


@dataclass(frozen=True)
class Conv:
    """Square kernel, zero padding. Weights: (kernel, kernel, channels in, filters)."""

    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0
    gain: float = HE

    def output(self, image: Shape) -> Shape:
        height, width, _ = _image(image)
        return (*_windows(height, width, self.kernel, self.stride, self.padding), self.filters)

    def parameters(self, image: Shape) -> tuple[Parameter, ...]:
        fan_in = self.kernel**2 * image[2]
        weight = Parameter("weight", (self.kernel, self.kernel, image[2], self.filters), fan_in, self.gain)
        return weight, Parameter("bias", (self.filters,), fan_in, 0.0)


@dataclass(frozen=True)
class MaxPool(_NothingToLearn):
    kernel: int
    stride: int

    def output(self, image: Shape) -> Shape:
        height, width, channels = _image(image)
        return (*_windows(height, width, self.kernel, self.stride, 0), channels)


@dataclass(frozen=True)
class Relu(_NothingToLearn):
    def output(self, features: Shape) -> Shape:
        return features


@dataclass(frozen=True)
class Add(_NothingToLearn):
    """Two branches of the same shape, summed."""

    def output(self, left: Shape, right: Shape) -> Shape:
        if left != right:
            raise GraphError(f"adds {left} to {right}")
        return left


@dataclass(frozen=True)
class Dense:
    """Fully connected; an image is read as one long row. Weights: (features in, units)."""

    units: int
    gain: float = HE

    def output(self, _: Shape) -> Shape:
        return (self.units,)

    def parameters(self, features: Shape) -> tuple[Parameter, ...]:
        fan_in = prod(features)
        weight = Parameter("weight", (fan_in, self.units), fan_in, self.gain)
        return weight, Parameter("bias", (self.units,), fan_in, 0.0)


Layer = Conv | MaxPool | Relu | Add | Dense


@dataclass(frozen=True)
class Node:
    """A layer in its place. `inputs` are positions in the graph's nodes; -1 is the image."""

    name: str
    layer: Layer
    inputs: tuple[int, ...]
    shape: Shape
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Graph:
    """Nodes in the order they run; the last one gives the class scores."""

    shape: Shape
    nodes: tuple[Node, ...]

    @property
    def classes(self) -> int:
        return prod(self.nodes[-1].shape)

    @property
    def parameter_count(self) -> int:
        return sum(parameter.size for node in self.nodes for parameter in node.parameters)


class GraphBuilder:
    """Adds layers one by one. `add` returns the layer's position, for those that branch off it."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape: Shape = tuple(shape)
        self._nodes: list[Node] = []

    def add(self, name: str, layer: Layer, *inputs: int) -> int:
        """After the layer before it, unless told which positions feed it."""
        if any(node.name == name for node in self._nodes):
            raise GraphError(f"layer {name}: the name is taken")
        feeds = inputs or (len(self._nodes) - 1,)
        shapes = [self._shape if feed < 0 else self._nodes[feed].shape for feed in feeds]
        try:
            node = Node(name, layer, feeds, layer.output(*shapes), layer.parameters(*shapes))
        except (GraphError, TypeError) as error:
            raise GraphError(f"layer {name} ({type(layer).__name__}): {error}") from None
        self._nodes.append(node)
        return len(self._nodes) - 1

    def build(self) -> Graph:
        return Graph(self._shape, tuple(self._nodes))


def _image(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise GraphError(f"needs an image (height, width, channels), its input is {shape}")
    return shape[0], shape[1], shape[2]


def _windows(height: int, width: int, kernel: int, stride: int, padding: int) -> tuple[int, int]:
    rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
    if rows < 1 or columns < 1:
        raise GraphError(f"its {kernel}x{kernel} window does not fit into {height}x{width} with padding {padding}")
    return rows, columns
