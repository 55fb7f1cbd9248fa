"""Reference layers: forward and backward of every layer in plain numpy, side by side. Slow, short and correct.

`x` is the input of a layer, `y` its output, `dy` the gradient of the loss with respect to `y`. Computes in the
precision of the state; sums over a whole batch are in double precision. Where definitions differ (variance of the
running statistics, ties, the edges of ReLU6), PyTorch's is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phone_agent.nn import graph as nn
from phone_agent.nn.packing import Tensors

Array = NDArray[Any]
Index = tuple[slice, slice, slice]


class Taps:
    """The taps of a kernel. `padded[index]` are the pixels that all windows have at one tap."""

    def __init__(
        self, x: Array, kernel: nn.IntPair, stride: int, padding: nn.IntPair, *, dilation: int = 1, ceil: bool = False
    ) -> None:
        self._kernel, self._stride, self._dilation = nn.as_pair(kernel), stride, dilation
        _, height, width, _ = x.shape
        self._image, self._near = (height, width), nn.as_pair(padding)
        self.windows = nn.count_windows(height, width, kernel, stride, padding=padding, dilation=dilation, ceil=ceil)
        self.count = self._kernel[0] * self._kernel[1]

    def pad(self, x: Array, fill: float = 0.0) -> Array:
        """Pad as far as the windows reach: beyond the padding if the last window extends past it."""
        far = (
            max(0, (windows - 1) * self._stride + (reach - 1) * self._dilation + 1 - near - side)
            for windows, reach, near, side in zip(self.windows, self._kernel, self._near, self._image, strict=True)
        )
        margins = zip(self._near, far, strict=True)
        return np.pad(x, ((0, 0), *margins, (0, 0)), constant_values=fill)

    def crop(self, padded: Array) -> Array:
        (top, left), (height, width) = self._near, self._image
        return padded[:, top : top + height, left : left + width]

    def __iter__(self) -> Iterator[tuple[tuple[int, int], Index]]:
        """Each tap (i, j), and the index of its pixels in the padded images: (n, rows, columns, channels)."""
        for i, j in product(*map(range, self._kernel)):
            yield (i, j), (slice(None), self._slice(i, self.windows[0]), self._slice(j, self.windows[1]))

    def _slice(self, tap: int, count: int) -> slice:
        start = tap * self._dilation
        return slice(start, start + (count - 1) * self._stride + 1, self._stride)


def conv_taps(layer: nn.Conv, x: Array) -> Taps:
    return Taps(x, layer.kernel, layer.stride, layer.padding, dilation=layer.dilation)


def split_groups(x: Array, groups: int) -> Array:
    """Rows of channels as a stack of one matrix per group: (groups, rows, channels / groups)."""
    return x.reshape(-1, groups, x.shape[-1] // groups).swapaxes(0, 1)


def conv_forward(layer: nn.Conv, x: Array, weight: Array, bias: Array | None = None) -> Array:
    taps = conv_taps(layer, x)
    stack = np.zeros((layer.groups, len(x) * taps.windows[0] * taps.windows[1], layer.filters // layer.groups), x.dtype)
    padded = taps.pad(x)
    for tap, index in taps:
        stack += split_groups(padded[index], layer.groups) @ split_groups(weight[tap], layer.groups)
    y = stack.swapaxes(0, 1).reshape(len(x), *taps.windows, layer.filters)
    return y if bias is None else y + bias


def conv_backward(layer: nn.Conv, dy: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Gradients of input, weight and bias."""
    taps = conv_taps(layer, x)
    padded = taps.pad(x)
    dpadded, dweight = np.zeros_like(padded), np.empty_like(weight)
    stack = split_groups(dy, layer.groups)
    for tap, index in taps:
        dtap = split_groups(padded[index], layer.groups).swapaxes(1, 2) @ stack
        dweight[tap] = dtap.swapaxes(0, 1).reshape(weight[tap].shape)
        dstack = stack @ split_groups(weight[tap], layer.groups).swapaxes(1, 2)
        dpadded[index] += dstack.swapaxes(0, 1).reshape(dpadded[index].shape)
    return taps.crop(dpadded), dweight, sum_over_pixels(dy)


def sum_over_pixels(values: Array) -> Array:
    """The sum over everything except the channels."""
    total: Array = values.sum(axis=tuple(range(values.ndim - 1)), dtype=np.float64).astype(values.dtype)
    return total


def pool_taps(layer: nn.MaxPool | nn.AvgPool, x: Array) -> Taps:
    return Taps(x, layer.kernel, layer.stride, layer.padding, ceil=layer.ceil)


def maxpool_forward(layer: nn.MaxPool, x: Array) -> tuple[Array, Array]:
    """Also returns the argmax: the first tap with the largest value."""
    taps = pool_taps(layer, x)
    padded = taps.pad(x, fill=-np.inf)
    stack = np.stack([padded[index] for _, index in taps])
    return stack.max(axis=0), stack.argmax(axis=0)


def maxpool_backward(layer: nn.MaxPool, dy: Array, argmax: Array, x: Array) -> Array:
    taps = pool_taps(layer, x)
    dpadded = taps.pad(np.zeros_like(x))
    for tap, (_, index) in enumerate(taps):
        dpadded[index] += np.where(argmax == tap, dy, 0)
    return taps.crop(dpadded)


def avgpool_forward(layer: nn.AvgPool, x: Array) -> Array:
    taps = pool_taps(layer, x)
    padded = taps.pad(x)
    total: Array = np.sum([padded[index] for _, index in taps], axis=0)
    return total / window_pixels(layer, x)


def avgpool_backward(layer: nn.AvgPool, dy: Array, x: Array) -> Array:
    taps = pool_taps(layer, x)
    dpadded = taps.pad(np.zeros_like(x))
    mean = dy / window_pixels(layer, x)
    for _, index in taps:
        dpadded[index] += mean
    return taps.crop(dpadded)


def window_pixels(layer: nn.AvgPool, x: Array) -> Array:
    """The divisor of the average, for every window."""
    taps = pool_taps(layer, x)
    inside = taps.pad(np.ones((1, *x.shape[1:3], 1), x.dtype), fill=float(layer.count_padding))
    total: Array = np.sum([inside[index] for _, index in taps], axis=0)
    return total


def global_avgpool_forward(x: Array) -> Array:
    y: Array = x.mean(axis=(1, 2))
    return y


def global_avgpool_backward(dy: Array, x: Array) -> Array:
    _, height, width, _ = x.shape
    return np.broadcast_to(dy[:, None, None] / (height * width), x.shape)


class Moments(NamedTuple):
    """Mean and variance of a batch, per channel. `variance` is biased, as used for normalization."""

    mean: Array
    variance: Array
    pixels: int


def moments(x: Array) -> Moments:
    count = x.size // x.shape[-1]
    mean = sum_over_pixels(x) / count
    return Moments(mean, sum_over_pixels((x - mean) ** 2) / count, count)


def norm_forward(layer: nn.BatchNorm, x: Array, weight: Array, bias: Array, by: Moments) -> Array:
    y: Array = (x - by.mean) / np.sqrt(by.variance + layer.epsilon) * weight + bias
    return y


def norm_backward(layer: nn.BatchNorm, dy: Array, x: Array, weight: Array, by: Moments) -> tuple[Array, Array, Array]:
    """Gradients of input, weight and bias. The moments depend on x."""
    deviation = np.sqrt(by.variance + layer.epsilon)
    normal = (x - by.mean) / deviation
    dweight, dbias = sum_over_pixels(dy * normal), sum_over_pixels(dy)
    dx = weight / deviation * (dy - dbias / by.pixels - normal * dweight / by.pixels)
    return dx, dweight, dbias


def update_running_statistics(layer: nn.BatchNorm, by: Moments, running: Tensors) -> None:
    """The running variance is unbiased. A single value has no variance and changes nothing."""
    if by.pixels == 1:
        return
    unbiased = by.variance * (by.pixels / (by.pixels - 1))
    for name, new in (("running_mean", by.mean), ("running_var", unbiased)):
        running[name] += layer.momentum * (new - running[name])


def relu_forward(layer: nn.Relu, x: Array) -> Array:
    return np.clip(x, 0, 6) if layer.six else np.maximum(x, 0)


def relu_backward(layer: nn.Relu, dy: Array, x: Array) -> Array:
    return np.where((x > 0) & (x < 6) if layer.six else x > 0, dy, 0)


def sum_over_channels(x: Array, below: int, above: int) -> Array:
    """The sum of each channel, the `below` channels before it and the `above` channels after it."""
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(below, above)])
    total: Array = np.sum([padded[..., shift : shift + x.shape[-1]] for shift in range(below + above + 1)], axis=0)
    return total


def lrn_base(layer: nn.LocalResponseNorm, x: Array) -> Array:
    around = sum_over_channels(x * x, layer.size // 2, (layer.size - 1) // 2)
    return layer.k + layer.alpha / layer.size * around


def lrn_forward(layer: nn.LocalResponseNorm, x: Array) -> Array:
    y: Array = x * lrn_base(layer, x) ** -layer.beta
    return y


def lrn_backward(layer: nn.LocalResponseNorm, dy: Array, x: Array) -> Array:
    """A channel is in the windows of its neighbors: the same window, mirrored."""
    base = lrn_base(layer, x)
    reflected = sum_over_channels(dy * x * base ** (-layer.beta - 1), (layer.size - 1) // 2, layer.size // 2)
    dx: Array = dy * base**-layer.beta - 2 * layer.alpha * layer.beta / layer.size * x * reflected
    return dx


def dropout_scale(layer: nn.Dropout, x: Array, draw: int, salt: int) -> Array:
    """The factor of each value: 0 or 1 / (1 - rate). The same in forward and backward."""
    scale: Array = keep_mask(x.size, layer.rate, draw, salt).reshape(x.shape) / x.dtype.type(1 - layer.rate)
    return scale.astype(x.dtype)


def apply_dropout(values: Array, scale: Array) -> Array:
    return values * scale


def dense_forward(x: Array, weight: Array, bias: Array) -> Array:
    y: Array = x.reshape(len(x), -1) @ weight + bias
    return y


def dense_backward(dy: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Gradients of input, weight and bias."""
    return (dy @ weight.T).reshape(x.shape), x.reshape(len(x), -1).T @ dy, dy.sum(axis=0)


def concat_forward(*branches: Array) -> Array:
    return np.concatenate(branches, axis=-1)


def concat_backward(dy: Array, *branches: Array) -> tuple[Array, ...]:
    ends = np.cumsum([branch.shape[-1] for branch in branches])[:-1]
    return tuple(np.split(dy, ends, axis=-1))


def cross_entropy_forward(scores: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]:
    """Mean cross-entropy, and the softmax. The mean is in double precision, since losses are compared."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - (1 - smoothing) * shifted[np.arange(len(labels)), labels]
    if smoothing:
        losses -= smoothing * shifted.mean(axis=1)
    return float(losses.mean(dtype=np.float64)), exponents / total


def cross_entropy_backward(softmax: Array, labels: Array, weight: float, smoothing: float = 0.0) -> Array:
    """The gradient of weight * mean."""
    dscores: Array = softmax - smoothing / softmax.shape[1]
    dscores[np.arange(len(labels)), labels] -= 1 - smoothing
    dscores *= weight / len(labels)
    return dscores


_MASK = 0xFFFFFFFF


def keep_mask(count: int, rate: float, draw: int, salt: int) -> NDArray[np.bool_]:
    """Dropout mask: the hash of core/src/dropout.c, bit for bit. Whether each of `count` elements is kept.

    `draw` differs by step, `salt` by layer.
    """
    key = _mix_one((draw & _MASK) + 0x9E3779B9 * salt) ^ _mix_one(((draw >> 32) & _MASK) + salt)
    threshold = min(int(float(np.float32(rate)) * 2**32), _MASK)
    positions = np.arange(count, dtype=np.int64).astype(np.uint32)
    return _mix(positions ^ np.uint32(key)) >= np.uint32(threshold)


def _mix_one(x: int) -> int:
    return int(_mix(np.array([x & _MASK], np.uint32))[0])


def _mix(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
