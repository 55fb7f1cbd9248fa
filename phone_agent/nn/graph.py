"""Graph of a network: layers, their connections and shapes. No arithmetic, no numpy.

Images are NHWC. Shapes omit the batch: (height, width, channels) or (features,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from phone_agent.contract.errors import AgentError, ErrorCode

Shape = tuple[int, ...]

MAX_CHANNELS = 2**24
MAX_ELEMENTS = 2**31 - 1  # of one tensor: the range of int32
OPTIMIZER_PREFIX = "optimizer."  # of optimizer state in checkpoints; no layer name may start with it


class GraphError(AgentError):
    """An invalid layer or network. The message names the layer."""

    code = ErrorCode.BAD_MODEL


@dataclass(frozen=True)
class Parameter:
    """A trainable tensor, or a running statistic. Initialized uniformly in center ± sqrt(gain / fan).

    `fan` is the fan-in (inputs per output) or the fan-out (outputs per input).
    """

    name: str
    shape: Shape
    fan: int
    gain: float
    center: float = 0.0

    @property
    def size(self) -> int:
        return prod(self.shape)


class _NoParameters:
    def parameters(self, *_: Shape) -> tuple[Parameter, ...]:
        return ()

    def statistics(self, *_: Shape) -> tuple[Parameter, ...]:
        return ()


class _NoStatistics:
    def statistics(self, *_: Shape) -> tuple[Parameter, ...]:
        return ()


class _SameShape(_NoParameters):
    def output(self, features: Shape) -> Shape:
        return features


HE = 6.0  # variance 2 / fan: for layers followed by ReLU
GLOROT = 3.0  # variance 1 / fan: for networks without batch normalization
TORCH_DEFAULT = 1.0  # variance 1 / (3 fan): for wide dense layers without batch normalization
UNDECIDED = 0.03  # for the classifier: all classes start about equally likely

IntPair = int | tuple[int, int]  # one number for both directions, or (vertical, horizontal)


def as_pair(value: IntPair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


@dataclass(frozen=True)
class Conv(_NoStatistics):
    """2D convolution with zero padding. Weights: (kernel h, kernel w, input channels / groups, filters)."""

    filters: int
    kernel: IntPair
    stride: int = 1
    padding: IntPair = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    gain: float = HE
    # Initialize by fan-out, which preserves the variance of gradients; batch normalization takes care of activations.
    fan_out: bool = False

    def output(self, image: Shape) -> Shape:
        height, width, channels = _image(image)
        if self.groups < 1 or channels % self.groups or self.filters % self.groups:
            raise GraphError(
                f"{channels} channels and {self.filters} filters must be divisible by {self.groups} groups"
            )
        if min(self.filters, self.stride, self.dilation) < 1:
            raise GraphError("filters, stride and dilation must be at least 1")
        size = count_windows(height, width, self.kernel, self.stride, padding=self.padding, dilation=self.dilation)
        return (*size, self.filters)

    def parameters(self, image: Shape) -> tuple[Parameter, ...]:
        rows, columns = as_pair(self.kernel)
        shape = (rows, columns, image[2] // self.groups, self.filters)
        fan = rows * columns * (self.filters // self.groups if self.fan_out else shape[2])
        weight = Parameter("weight", shape, fan, self.gain)
        return (weight, Parameter("bias", (self.filters,), fan, 0.0)) if self.bias else (weight,)

    def is_depthwise(self, image: Shape) -> bool:
        return self.groups > 1 and self.groups == image[2] == self.filters


@dataclass(frozen=True)
class MaxPool(_NoParameters):
    """`ceil`: also count a last window that extends past the edge, as Caffe does. Padding is never the maximum."""

    kernel: IntPair
    stride: int
    padding: IntPair = 0
    ceil: bool = False

    def output(self, image: Shape) -> Shape:
        return _pooled(self, image)


@dataclass(frozen=True)
class AvgPool(_NoParameters):
    """`count_padding`: divide by the size of the window; otherwise by its pixels inside the image."""

    kernel: IntPair
    stride: int
    padding: IntPair = 0
    ceil: bool = False
    count_padding: bool = True

    def output(self, image: Shape) -> Shape:
        return _pooled(self, image)


@dataclass(frozen=True)
class GlobalAvgPool(_NoParameters):
    """Mean of each channel: (height, width, channels) to (channels,)."""

    def output(self, image: Shape) -> Shape:
        return (_image(image)[2],)


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalization, per channel over batch and pixels. Evaluation uses the running statistics."""

    epsilon: float = 1e-5
    momentum: float = 0.1

    def output(self, image: Shape) -> Shape:
        return image

    def parameters(self, image: Shape) -> tuple[Parameter, ...]:
        shape = (image[-1],)
        return Parameter("weight", shape, 1, 0.0, center=1.0), Parameter("bias", shape, 1, 0.0)

    def statistics(self, image: Shape) -> tuple[Parameter, ...]:
        shape = (image[-1],)
        return Parameter("running_mean", shape, 1, 0.0), Parameter("running_var", shape, 1, 0.0, center=1.0)


@dataclass(frozen=True)
class Relu(_SameShape):
    """`six`: ReLU6, which also clamps at 6."""

    six: bool = False


@dataclass(frozen=True)
class LocalResponseNorm(_NoParameters):
    """Local response normalization: y = x (k + alpha / size * sum of x^2 over the `size` nearest channels)^-beta."""

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def output(self, features: Shape) -> Shape:
        if self.size < 1:
            raise GraphError(f"size {self.size}: it must be at least 1")
        return features


@dataclass(frozen=True)
class Dropout(_NoParameters):
    """In training, each value becomes 0 with probability `rate`; the others are divided by 1 - rate."""

    rate: float = 0.5

    def output(self, features: Shape) -> Shape:
        if not 0 <= self.rate < 1:
            raise GraphError(f"rate {self.rate:g}: it must be at least 0 and less than 1")
        return features


@dataclass(frozen=True)
class Add(_NoParameters):
    """Sum of two branches of the same shape."""

    def output(self, left: Shape, right: Shape) -> Shape:
        if left != right:
            raise GraphError(f"cannot add shapes {left} and {right}")
        return left


@dataclass(frozen=True)
class Concat(_NoParameters):
    """Concatenation along the channels of branches with the same height and width."""

    def output(self, *branches: Shape) -> Shape:
        sizes = {_image(branch)[:2] for branch in branches}
        if len(sizes) != 1:
            raise GraphError(f"cannot concatenate maps of different sizes: {', '.join(map(str, branches))}")
        return (*sizes.pop(), sum(branch[2] for branch in branches))


@dataclass(frozen=True)
class Dense(_NoStatistics):
    """Fully connected layer. An image is flattened. Weights: (input features, units)."""

    units: int
    gain: float = HE

    def output(self, _: Shape) -> Shape:
        return (self.units,)

    def parameters(self, features: Shape) -> tuple[Parameter, ...]:
        fan_in = prod(features)
        weight = Parameter("weight", (fan_in, self.units), fan_in, self.gain)
        return weight, Parameter("bias", (self.units,), fan_in, 0.0)


Layer = Conv | MaxPool | AvgPool | GlobalAvgPool | BatchNorm | Relu | LocalResponseNorm | Dropout | Add | Concat | Dense


@dataclass(frozen=True)
class Node:
    """A layer in the graph. `inputs` are positions of nodes; -1 is the image."""

    name: str
    layer: Layer
    inputs: tuple[int, ...]
    shape: Shape
    parameters: tuple[Parameter, ...]
    statistics: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order; the last one outputs the class scores.

    `name` is used in messages; `frozen` names parameters ('conv1.weight') that are not trained.
    """

    shape: Shape
    nodes: tuple[Node, ...]
    name: str = ""
    frozen: frozenset[str] = frozenset()

    @property
    def classes(self) -> int:
        return prod(self.nodes[-1].shape)

    @property
    def unused_layers(self) -> tuple[str, ...]:
        """Layers except the last whose output no other layer reads. Such a network cannot be trained."""
        read = {feed for node in self.nodes for feed in node.inputs}
        return tuple(node.name for position, node in enumerate(self.nodes[:-1]) if position not in read)

    @property
    def min_batch(self) -> int:
        """The fewest images to train on at a time: a batch normalization needs two values per channel."""
        single = any(isinstance(node.layer, BatchNorm) and prod(node.shape[:-1]) == 1 for node in self.nodes)
        return 2 if single else 1

    @property
    def min_capacity(self) -> int:
        """The images that memory must hold at a time, so that any batch splits into parts of at least `min_batch`."""
        return 2 * self.min_batch - 1

    @property
    def parameter_count(self) -> int:
        return sum(parameter.size for node in self.nodes for parameter in node.parameters)


class GraphBuilder:
    """Adds layers one by one. `add` returns the position of the layer, which later layers can use as an input.

    `width` multiplies the numbers of channels that are asked for with `channels`.
    """

    def __init__(self, shape: Sequence[int], width: float = 1.0) -> None:
        self._shape: Shape = _check_shape(tuple(shape))
        self._width = width
        self._nodes: list[Node] = []
        self._names: set[str] = set()

    def __len__(self) -> int:
        return len(self._nodes)

    def channels(self, count: int) -> int:
        """count * width, rounded to a multiple of 8, at most 10% down, as in MobileNet-v2. Exact for width 1."""
        if self._width == 1.0:
            return count
        exact = count * self._width
        nearest = max(8, int(exact + 4) // 8 * 8)
        return nearest + 8 if nearest < 0.9 * exact else nearest

    def shape_of(self, position: int) -> Shape:
        if not -1 <= position < len(self._nodes):
            raise GraphError(f"no layer at position {position}: use the return value of add(), or -1 for the image")
        return self._shape if position == -1 else self._nodes[position].shape

    def add(self, name: str, layer: Layer, *inputs: int) -> int:
        """Reads the previous layer, unless `inputs` are given."""
        if name in self._names:
            raise GraphError(f"layer {name}: the name is already used")
        if f"{name}.".startswith(OPTIMIZER_PREFIX):
            raise GraphError(f"layer {name}: in checkpoints this prefix marks optimizer state; use another name")
        feeds = inputs or (len(self._nodes) - 1,)
        try:
            shapes = [self.shape_of(feed) for feed in feeds]
            shape = _check_shape(layer.output(*shapes))
            node = Node(name, layer, feeds, shape, layer.parameters(*shapes), layer.statistics(*shapes))
        except (GraphError, TypeError) as error:
            raise GraphError(f"layer {name} ({type(layer).__name__}): {error}") from None
        self._nodes.append(node)
        self._names.add(name)
        return len(self._nodes) - 1

    def build(self) -> Graph:
        return Graph(self._shape, tuple(self._nodes))


def _check_shape(shape: Shape) -> Shape:
    if min(shape, default=0) < 1:
        raise GraphError(f"invalid shape {shape}: all dimensions must be at least 1")
    if shape[-1] > MAX_CHANNELS:
        raise GraphError(f"{shape[-1]} channels or classes; at most {MAX_CHANNELS} are supported")
    if prod(shape) > MAX_ELEMENTS:
        raise GraphError(f"shape {shape} has {prod(shape)} values per image; at most {MAX_ELEMENTS} are supported")
    return shape


def _image(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise GraphError(f"needs an image (height, width, channels), but its input has shape {shape}")
    return shape[0], shape[1], shape[2]


def _pooled(layer: MaxPool | AvgPool, image: Shape) -> Shape:
    height, width, channels = _image(image)
    if any(2 * pad > reach for pad, reach in zip(as_pair(layer.padding), as_pair(layer.kernel), strict=True)):
        raise GraphError(f"padding {layer.padding} for window {layer.kernel}: it must be at most half of the window")
    return (*count_windows(height, width, layer.kernel, layer.stride, padding=layer.padding, ceil=layer.ceil), channels)


def count_windows(
    height: int,
    width: int,
    kernel: IntPair,
    stride: int,
    *,
    padding: IntPair = 0,
    dilation: int = 1,
    ceil: bool = False,
) -> tuple[int, int]:
    """How many windows fit, vertically and horizontally. With `ceil`, a window must start inside the padded image."""
    if min(*as_pair(kernel), stride) < 1:
        raise GraphError(f"window {kernel} and stride {stride}: both must be at least 1")
    if min(as_pair(padding)) < 0:
        raise GraphError(f"padding {padding}: it must be at least 0")
    rows, columns = (
        _windows(side, (reach - 1) * dilation + 1, stride, pad, ceil=ceil)
        for side, reach, pad in zip((height, width), as_pair(kernel), as_pair(padding), strict=True)
    )
    if rows < 1 or columns < 1:
        reach = "x".join(map(str, as_pair(kernel)))
        raise GraphError(f"the {reach} window does not fit into {height}x{width} with padding {padding}")
    return rows, columns


def _windows(side: int, reach: int, stride: int, padding: int, *, ceil: bool) -> int:
    room = side + 2 * padding - reach
    count = (room + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= side + padding else count
