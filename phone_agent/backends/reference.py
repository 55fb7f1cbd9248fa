"""The oracle: every layer in plain numpy, forward and backward side by side. Slow, short, and right.

`x` is a layer's input, `y` its output, `dy` the loss's gradient by `y`. Computes in the precision of the state; sums
over a whole batch are in double. Where there is a choice (variance of the running statistics, ties, the edges of
ReLU6), it is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.nn.executable import Executable, GradientRequest, GradientsReady
from phone_agent.nn.graph import (
    Add,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    Graph,
    IntPair,
    LocalResponseNorm,
    MaxPool,
    Node,
    Relu,
    as_pair,
    count_windows,
)
from phone_agent.nn.packing import State, Tensors
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.options import Options

Array = NDArray[Any]
Index = tuple[slice, slice, slice]


class Taps:
    """The places a kernel reaches, tap by tap: `padded[there]` are the pixels that all windows have at one tap."""

    def __init__(
        self, x: Array, kernel: IntPair, stride: int, padding: IntPair, *, dilation: int = 1, ceil: bool = False
    ) -> None:
        self._kernel, self._stride, self._dilation = as_pair(kernel), stride, dilation
        _, height, width, _ = x.shape
        self._image, self._near = (height, width), as_pair(padding)
        self.places = count_windows(height, width, kernel, stride, padding=padding, dilation=dilation, ceil=ceil)
        self.count = self._kernel[0] * self._kernel[1]

    def pad(self, x: Array, fill: float = 0.0) -> Array:
        """As far as the windows reach: beyond the far padding where the last one hangs over."""
        far = (
            max(0, (places - 1) * self._stride + (reach - 1) * self._dilation + 1 - near - side)
            for places, reach, near, side in zip(self.places, self._kernel, self._near, self._image, strict=True)
        )
        margins = zip(self._near, far, strict=True)
        return np.pad(x, ((0, 0), *margins, (0, 0)), constant_values=fill)

    def crop(self, padded: Array) -> Array:
        (top, left), (height, width) = self._near, self._image
        return padded[:, top : top + height, left : left + width]

    def __iter__(self) -> Iterator[tuple[tuple[int, int], Index]]:
        """Each tap (i, j), and the index of what lies there in the padded images: (n, rows, columns, channels)."""
        for i, j in product(*map(range, self._kernel)):
            yield (i, j), (slice(None), self._slice(i, self.places[0]), self._slice(j, self.places[1]))

    def _slice(self, tap: int, places: int) -> slice:
        start = tap * self._dilation
        return slice(start, start + (places - 1) * self._stride + 1, self._stride)


def conv_taps(layer: Conv, x: Array) -> Taps:
    return Taps(x, layer.kernel, layer.stride, layer.padding, dilation=layer.dilation)


def split_groups(x: Array, groups: int) -> Array:
    """Rows of channels as a stack of one matrix a group: (groups, rows, channels / groups)."""
    return x.reshape(-1, groups, x.shape[-1] // groups).swapaxes(0, 1)


def conv_forward(layer: Conv, x: Array, weight: Array, bias: Array | None = None) -> Array:
    taps = conv_taps(layer, x)
    stack = np.zeros((layer.groups, len(x) * taps.places[0] * taps.places[1], layer.filters // layer.groups), x.dtype)
    padded = taps.pad(x)
    for tap, there in taps:
        stack += split_groups(padded[there], layer.groups) @ split_groups(weight[tap], layer.groups)
    y = stack.swapaxes(0, 1).reshape(len(x), *taps.places, layer.filters)
    return y if bias is None else y + bias


def conv_backward(layer: Conv, dy: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    """By input, weight and bias."""
    taps = conv_taps(layer, x)
    padded = taps.pad(x)
    dpadded, dweight = np.zeros_like(padded), np.empty_like(weight)
    stack = split_groups(dy, layer.groups)
    for tap, there in taps:
        dtap = split_groups(padded[there], layer.groups).swapaxes(1, 2) @ stack
        dweight[tap] = dtap.swapaxes(0, 1).reshape(weight[tap].shape)
        dstack = stack @ split_groups(weight[tap], layer.groups).swapaxes(1, 2)
        dpadded[there] += dstack.swapaxes(0, 1).reshape(dpadded[there].shape)
    return taps.crop(dpadded), dweight, sum_over_pixels(dy)


def sum_over_pixels(values: Array) -> Array:
    """Summed over everything but the channels."""
    total: Array = values.sum(axis=tuple(range(values.ndim - 1)), dtype=np.float64).astype(values.dtype)
    return total


def pool_taps(layer: MaxPool | AvgPool, x: Array) -> Taps:
    return Taps(x, layer.kernel, layer.stride, layer.padding, ceil=layer.ceil)


def maxpool_forward(layer: MaxPool, x: Array) -> tuple[Array, Array]:
    """And which tap won: the first of the largest."""
    taps = pool_taps(layer, x)
    padded = taps.pad(x, fill=-np.inf)
    stack = np.stack([padded[there] for _, there in taps])
    return stack.max(axis=0), stack.argmax(axis=0)


def maxpool_backward(layer: MaxPool, dy: Array, winner: Array, x: Array) -> Array:
    taps = pool_taps(layer, x)
    dpadded = taps.pad(np.zeros_like(x))
    for number, (_, there) in enumerate(taps):
        dpadded[there] += np.where(winner == number, dy, 0)
    return taps.crop(dpadded)


def avgpool_forward(layer: AvgPool, x: Array) -> Array:
    taps = pool_taps(layer, x)
    padded = taps.pad(x)
    total: Array = np.sum([padded[there] for _, there in taps], axis=0)
    return total / window_pixels(layer, x)


def avgpool_backward(layer: AvgPool, dy: Array, x: Array) -> Array:
    taps = pool_taps(layer, x)
    dpadded = taps.pad(np.zeros_like(x))
    share = dy / window_pixels(layer, x)
    for _, there in taps:
        dpadded[there] += share
    return taps.crop(dpadded)


def window_pixels(layer: AvgPool, x: Array) -> Array:
    """What an average divides by, at every place."""
    taps = pool_taps(layer, x)
    inside = taps.pad(np.ones((1, *x.shape[1:3], 1), x.dtype), fill=float(layer.count_padding))
    total: Array = np.sum([inside[there] for _, there in taps], axis=0)
    return total


def global_avgpool_forward(x: Array) -> Array:
    y: Array = x.mean(axis=(1, 2))
    return y


def global_avgpool_backward(dy: Array, x: Array) -> Array:
    _, height, width, _ = x.shape
    return np.broadcast_to(dy[:, None, None] / (height * width), x.shape)


class Moments(NamedTuple):
    """Of a batch, by channel. `variance` is the biased one, which normalises."""

    mean: Array
    variance: Array
    pixels: int


def moments(x: Array) -> Moments:
    count = x.size // x.shape[-1]
    mean = sum_over_pixels(x) / count
    return Moments(mean, sum_over_pixels((x - mean) ** 2) / count, count)


def norm_forward(layer: BatchNorm, x: Array, weight: Array, bias: Array, by: Moments) -> Array:
    y: Array = (x - by.mean) / np.sqrt(by.variance + layer.epsilon) * weight + bias
    return y


def norm_backward(layer: BatchNorm, dy: Array, x: Array, weight: Array, by: Moments) -> tuple[Array, Array, Array]:
    """By input, weight and bias; the moments are those of x itself, and move with it."""
    deviation = np.sqrt(by.variance + layer.epsilon)
    normal = (x - by.mean) / deviation
    dweight, dbias = sum_over_pixels(dy * normal), sum_over_pixels(dy)
    dx = weight / deviation * (dy - dbias / by.pixels - normal * dweight / by.pixels)
    return dx, dweight, dbias


def update_running_statistics(layer: BatchNorm, by: Moments, running: Tensors) -> None:
    """The running variance is the unbiased one."""
    unbiased = by.variance * (by.pixels / max(by.pixels - 1, 1))
    for name, new in (("running_mean", by.mean), ("running_var", unbiased)):
        running[name] += layer.momentum * (new - running[name])


def relu_forward(layer: Relu, x: Array) -> Array:
    return np.clip(x, 0, 6) if layer.six else np.maximum(x, 0)


def relu_backward(layer: Relu, dy: Array, x: Array) -> Array:
    return np.where((x > 0) & (x < 6) if layer.six else x > 0, dy, 0)


def sum_over_channels(x: Array, below: int, above: int) -> Array:
    """Each channel's sum with the `below` channels before it and the `above` after it."""
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(below, above)])
    total: Array = np.sum([padded[..., shift : shift + x.shape[-1]] for shift in range(below + above + 1)], axis=0)
    return total


def lrn_base(layer: LocalResponseNorm, x: Array) -> Array:
    around = sum_over_channels(x * x, layer.size // 2, (layer.size - 1) // 2)
    return layer.k + layer.alpha / layer.size * around


def lrn_forward(layer: LocalResponseNorm, x: Array) -> Array:
    y: Array = x * lrn_base(layer, x) ** -layer.beta
    return y


def lrn_backward(layer: LocalResponseNorm, dy: Array, x: Array) -> Array:
    """A channel is in the windows of those around it: the same window, mirrored."""
    base = lrn_base(layer, x)
    blame = sum_over_channels(dy * x * base ** (-layer.beta - 1), (layer.size - 1) // 2, layer.size // 2)
    dx: Array = dy * base**-layer.beta - 2 * layer.alpha * layer.beta / layer.size * x * blame
    return dx


def dropout_scale(layer: Dropout, x: Array, draw: int, salt: int) -> Array:
    """What each value is multiplied with: 0 or 1 / (1 - rate). Forward and backward are this one product."""
    from phone_agent.nn.dropout import keep_mask

    scale: Array = keep_mask(x.size, layer.rate, draw, salt).reshape(x.shape) / x.dtype.type(1 - layer.rate)
    return scale.astype(x.dtype)


def apply_dropout(values: Array, scale: Array) -> Array:
    return values * scale


def dense_forward(x: Array, weight: Array, bias: Array) -> Array:
    y: Array = x.reshape(len(x), -1) @ weight + bias
    return y


def dense_backward(dy: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    """By input, weight and bias."""
    return (dy @ weight.T).reshape(x.shape), x.reshape(len(x), -1).T @ dy, dy.sum(axis=0)


def concat_forward(*branches: Array) -> Array:
    return np.concatenate(branches, axis=-1)


def concat_backward(dy: Array, *branches: Array) -> tuple[Array, ...]:
    ends = np.cumsum([branch.shape[-1] for branch in branches])[:-1]
    return tuple(np.split(dy, ends, axis=-1))


def cross_entropy_forward(scores: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]:
    """Mean cross-entropy, and the softmax. The sum is in double: it is what people compare."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - (1 - smoothing) * shifted[np.arange(len(labels)), labels]
    if smoothing:
        losses -= smoothing * shifted.mean(axis=1)
    return float(losses.mean(dtype=np.float64)), exponents / total


def cross_entropy_backward(softmax: Array, labels: Array, weight: float, smoothing: float = 0.0) -> Array:
    """Gradient of weight x mean."""
    dscores: Array = softmax - smoothing / softmax.shape[1]
    dscores[np.arange(len(labels)), labels] -= 1 - smoothing
    dscores *= weight / len(labels)
    return dscores


class ReferenceBackend:
    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        return np.zeros(count, dtype)

    def compile(
        self,
        graph: Graph,
        state: State,
        batch: int,  # noqa: ARG002 - takes any
        options: Options | None = None,
        also: Sequence[int] = (),  # noqa: ARG002 - takes any
    ) -> ReferenceExecutable:
        options = options or Options()
        if options.half:
            raise AgentError(
                "the reference backend stores what it computes: --half is for the others", code=ErrorCode.BAD_REQUEST
            )
        return ReferenceExecutable(graph, state, options)


class _NodeState:
    """A node with its tensors by their own names, gradients of those that learn, and what its forward keeps for its
    backward."""

    def __init__(self, node: Node, state: State) -> None:
        self.layer, self.inputs = node.layer, node.inputs
        learned, kept = state.packing.slots, state.statistics_packing.slots
        names = {parameter.name: learned[f"{node.name}.{parameter.name}"] for parameter in node.parameters}
        self.values: Tensors = {name: slot.view(state.values) for name, slot in names.items()}
        self.gradients: Tensors = {
            name: slot.view(state.gradients)
            for name, slot in names.items()
            if slot.offset < state.packing.trainable_size
        }
        self.running: Tensors = {
            each.name: kept[f"{node.name}.{each.name}"].view(state.statistics) for each in node.statistics
        }
        self.kept: Any = None
        self.accumulate = False

    def learn(self, dx: Array, dweight: Array, dbias: Array) -> tuple[Array]:
        for name, gradient in (("weight", dweight), ("bias", dbias)):
            if name in self.gradients:
                self.gradients[name][...] = gradient + self.gradients[name] if self.accumulate else gradient
        return (dx,)


class ReferenceExecutable(Executable):
    """Evaluation is `_forward` with training off; a training step runs it with training on, then `_backward`."""

    def __init__(self, graph: Graph, state: State, options: Options) -> None:
        self._state, self._parts = state, bucket_slices(state.packing, options.bucket_bytes)
        self._smoothing = options.label_smoothing
        self._places = [_NodeState(node, state) for node in graph.nodes]
        self._first = next((at for at, place in enumerate(self._places) if place.gradients), len(self._places))

    def prepare(self, sizes: Collection[int]) -> None:
        """Takes any."""

    def forward(self, images: Array) -> Array:
        return self._forward_all(images, training=False, draw=0)[-2]

    def compute_gradients(self, request: GradientRequest) -> float:
        if request.need is not None:
            for part in reversed(self._parts):
                request.need(part.start, part.stop)
        for place in self._places:
            place.accumulate = request.accumulate
        outputs = self._forward_all(request.images, training=True, draw=request.draw)
        loss, softmax = cross_entropy_forward(outputs[-2], request.labels, self._smoothing)
        dscores = cross_entropy_backward(softmax, request.labels, request.weight, self._smoothing)
        self._backward_all(outputs, dscores, request.ready or (lambda *_: None))
        return loss

    def _forward_all(self, images: Array, *, training: bool, draw: int) -> list[Array]:
        """By node; the images last, so that position -1 finds them."""
        outputs: list[Array] = [*[np.empty(0)] * len(self._places), images]
        for position, place in enumerate(self._places):
            feeds = (outputs[feed] for feed in place.inputs)
            outputs[position] = self._forward(place, *feeds, training=training, draw=draw, salt=position)
        return outputs

    def _backward_all(self, outputs: list[Array], dscores: Array, ready: GradientsReady) -> None:
        dys: dict[int, Array] = {len(self._places) - 1: dscores}
        waiting = list(self._parts)
        done = 0
        for position in reversed(range(self._first, len(self._places))):
            place = self._places[position]
            dxs = self._backward(place, dys.pop(position), *(outputs[feed] for feed in place.inputs))
            for feed, dx in zip(place.inputs, dxs, strict=True):
                dys[feed] = dys[feed] + dx if feed in dys else dx  # a layer that feeds two gets both gradients
            done += sum(gradient.size for gradient in place.gradients.values())
            while waiting and waiting[0].stop <= done:
                part = waiting.pop(0)
                ready(part.start, part.stop)
        for part in waiting:  # what is frozen
            ready(part.start, part.stop)

    def _forward(  # noqa: C901, PLR0911 - one case a layer
        self, at: _NodeState, x: Array, *more: Array, training: bool, draw: int, salt: int
    ) -> Array:
        match at.layer:
            case Conv() as layer:
                return conv_forward(layer, x, **at.values)
            case MaxPool() as layer:
                y, at.kept = maxpool_forward(layer, x)
                return y
            case AvgPool() as layer:
                return avgpool_forward(layer, x)
            case GlobalAvgPool():
                return global_avgpool_forward(x)
            case BatchNorm() as layer if training:
                at.kept = moments(x)
                update_running_statistics(layer, at.kept, at.running)
                return norm_forward(layer, x, **at.values, by=at.kept)
            case BatchNorm() as layer:
                by = Moments(at.running["running_mean"], at.running["running_var"], 0)
                return norm_forward(layer, x, **at.values, by=by)
            case Relu() as layer:
                return relu_forward(layer, x)
            case LocalResponseNorm() as layer:
                return lrn_forward(layer, x)
            case Dropout() as layer:
                at.kept = dropout_scale(layer, x, draw, salt) if training else np.ones((), x.dtype)
                return apply_dropout(x, at.kept)
            case Dense():
                return dense_forward(x, **at.values)
            case Add():
                return x + more[0]
            case Concat():
                return concat_forward(x, *more)

    def _backward(  # noqa: C901, PLR0911 - one case a layer
        self, at: _NodeState, dy: Array, x: Array, *more: Array
    ) -> tuple[Array, ...]:
        match at.layer:
            case Conv() as layer:
                return at.learn(*conv_backward(layer, dy, x, at.values["weight"]))
            case MaxPool() as layer:
                return (maxpool_backward(layer, dy, at.kept, x),)
            case AvgPool() as layer:
                return (avgpool_backward(layer, dy, x),)
            case GlobalAvgPool():
                return (global_avgpool_backward(dy, x),)
            case BatchNorm() as layer:
                return at.learn(*norm_backward(layer, dy, x, at.values["weight"], at.kept))
            case Relu() as layer:
                return (relu_backward(layer, dy, x),)
            case LocalResponseNorm() as layer:
                return (lrn_backward(layer, dy, x),)
            case Dropout():
                return (apply_dropout(dy, at.kept),)
            case Dense():
                return at.learn(*dense_backward(dy, x, at.values["weight"]))
            case Add():
                return dy, dy
            case Concat():
                return concat_backward(dy, x, *more)
