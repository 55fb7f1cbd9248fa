"""The reference for every op of core.h: numpy in double precision, forward and backward side by side.

Images are (n, h, w, c); `g` is the op's geometry. Nothing here is taken from the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core.ops import Act, Geometry, OptimizerKind

Array = NDArray[Any]


def activate(x: Array, act: Act) -> Array:
    if act == Act.NONE:
        return x
    return np.clip(x, 0, 6 if act == Act.RELU6 else np.inf)


def passed(gradient: Array, y: Array, act: Act) -> Array:
    """The gradient behind the activation with output y."""
    if act == Act.NONE:
        return gradient
    return np.where((y > 0) & ((y < 6) | (act != Act.RELU6)), gradient, 0.0)


def seen(x: Array, scale: Array | None, shift: Array | None, act: Act) -> Array:
    """With the fused operation applied."""
    return x if scale is None or shift is None else activate(scale * x + shift, act)


def _room(g: Geometry) -> tuple[int, int]:
    """Height and width of the padded image, which covers all windows."""
    down = (g.out_h - 1) * g.stride + (g.kernel_h - 1) * g.dilation + 1
    across = (g.out_w - 1) * g.stride + (g.kernel_w - 1) * g.dilation + 1
    return max(down, g.pad_h + g.in_h), max(across, g.pad_w + g.in_w)


def pad(x: Array, g: Geometry, value: float = 0.0) -> Array:
    height, width = _room(g)
    padded = np.full((g.batch, height, width, x.shape[-1]), value)
    padded[:, g.pad_h : g.pad_h + g.in_h, g.pad_w : g.pad_w + g.in_w] = x
    return padded


def tap(padded: Array, g: Geometry, i: int, j: int) -> Array:
    """The pixels that tap (i, j) of every window reads, as a view."""
    top, left = i * g.dilation, j * g.dilation
    down = slice(top, top + (g.out_h - 1) * g.stride + 1, g.stride)
    across = slice(left, left + (g.out_w - 1) * g.stride + 1, g.stride)
    return padded[:, down, across]


def _taps(g: Geometry) -> list[tuple[int, int]]:
    return [(i, j) for i in range(g.kernel_h) for j in range(g.kernel_w)]


def _by_group(x: Array, groups: int) -> Array:
    """(n, h, w, c) to (groups, pixels, channels of a group)."""
    return x.reshape(-1, groups, x.shape[-1] // groups).transpose(1, 0, 2)


def _together(grouped: Array, shape: tuple[int, ...]) -> Array:
    return grouped.transpose(1, 0, 2).reshape(shape)


def _weights(weights: Array, groups: int) -> Array:
    """(kh, kw, c, f) to (kh, kw, groups, c, filters of a group)."""
    kh, kw, c, f = weights.shape
    return weights.reshape(kh, kw, c, groups, f // groups).transpose(0, 1, 3, 2, 4)


def conv_forward(g: Geometry, x: Array, weights: Array) -> Array:
    padded, grouped = pad(x, g), _weights(weights, g.groups)
    y = sum(_by_group(tap(padded, g, i, j), g.groups) @ grouped[i, j] for i, j in _taps(g))
    return _together(np.asarray(y), (g.batch, g.out_h, g.out_w, g.out_c))


def conv_backward_data(g: Geometry, dy: Array, weights: Array) -> Array:
    dpadded = pad(np.zeros((g.batch, g.in_h, g.in_w, g.in_c)), g)
    grouped, dys = _weights(weights, g.groups), _by_group(dy, g.groups)
    for i, j in _taps(g):
        dx = dys @ grouped[i, j].transpose(0, 2, 1)
        tap(dpadded, g, i, j)[...] += _together(dx, (g.batch, g.out_h, g.out_w, g.in_c))
    return dpadded[:, g.pad_h : g.pad_h + g.in_h, g.pad_w : g.pad_w + g.in_w]


def conv_backward_weights(g: Geometry, x: Array, dy: Array) -> Array:
    padded, dys = pad(x, g), _by_group(dy, g.groups)
    dweights = np.empty((g.kernel_h, g.kernel_w, g.in_c // g.groups, g.out_c))
    for i, j in _taps(g):
        grouped = _by_group(tap(padded, g, i, j), g.groups).transpose(0, 2, 1) @ dys
        dweights[i, j] = grouped.transpose(1, 0, 2).reshape(dweights.shape[2:])
    return dweights


def max_pool_forward(g: Geometry, x: Array) -> tuple[Array, Array]:
    """The maximum, and its tap: the first of the largest values."""
    padded = pad(x, g, -np.inf)
    taps = np.stack([tap(padded, g, i, j) for i, j in _taps(g)])
    return taps.max(axis=0), taps.argmax(axis=0)


def max_pool_backward(g: Geometry, dy: Array, argmax: Array) -> Array:
    dpadded = pad(np.zeros((g.batch, g.in_h, g.in_w, g.in_c)), g)
    for number, (i, j) in enumerate(_taps(g)):
        tap(dpadded, g, i, j)[...] += np.where(argmax == number, dy, 0)
    return dpadded[:, g.pad_h : g.pad_h + g.in_h, g.pad_w : g.pad_w + g.in_w]


def _window_sizes(g: Geometry, *, count_padding: bool) -> Array:
    if count_padding:
        return np.full((1, g.out_h, g.out_w, 1), g.kernel_h * g.kernel_w)
    one = Geometry.from_buffer_copy(g)
    one.batch = 1
    inside = pad(np.ones((1, g.in_h, g.in_w, 1)), one)
    return np.asarray(sum(tap(inside, one, i, j) for i, j in _taps(one)))


def average_pool_forward(g: Geometry, x: Array, *, count_padding: bool) -> Array:
    padded = pad(x, g)
    total = sum(tap(padded, g, i, j) for i, j in _taps(g))
    return np.asarray(total / _window_sizes(g, count_padding=count_padding))


def average_pool_backward(g: Geometry, dy: Array, *, count_padding: bool) -> Array:
    dpadded = pad(np.zeros((g.batch, g.in_h, g.in_w, g.in_c)), g)
    for i, j in _taps(g):
        tap(dpadded, g, i, j)[...] += dy / _window_sizes(g, count_padding=count_padding)
    return dpadded[:, g.pad_h : g.pad_h + g.in_h, g.pad_w : g.pad_w + g.in_w]


def statistics(z: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """Mean, 1 / standard deviation and unbiased variance per channel."""
    rows = z.reshape(-1, z.shape[-1])
    mean, variance = rows.mean(axis=0), rows.var(axis=0)
    unbiased = variance * len(rows) / max(len(rows) - 1, 1)
    return mean, 1 / np.sqrt(variance + epsilon), unbiased


def gradient_sums(gradient: Array, z: Array, mean: Array) -> Array:
    """Sums of g and of g (z - mean) per channel: (2, channels)."""
    g, rows = gradient.reshape(-1, z.shape[-1]), z.reshape(-1, z.shape[-1])
    return np.stack([g.sum(axis=0), (g * (rows - mean)).sum(axis=0)])


def norm_backward(gradient: Array, z: Array, gamma: Array, mean: Array, inv_std: Array) -> tuple[Array, Array, Array]:
    """dz, dgamma and dbeta, from the gradient of gamma * (z - mean) * inv_std + beta."""
    rows = z.reshape(-1, z.shape[-1])
    dbeta, products = gradient_sums(gradient, z, mean)
    dgamma = products * inv_std
    normal = (rows - mean) * inv_std
    dz = gamma * inv_std * (gradient.reshape(rows.shape) - (dbeta + normal * dgamma) / len(rows))
    return dz.reshape(z.shape), dgamma, dbeta


def _neighbors(x: Array, size: int) -> Array:
    """The sum over the `size` channels around each; as in PyTorch, size / 2 of them come before it."""
    before, channels = size // 2, x.shape[-1]
    wide = np.pad(x, ((0, 0), (before, size - 1 - before)))
    return np.asarray(sum(wide[:, i : i + channels] for i in range(size)))


def lrn_forward(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    return np.asarray(x * (k + alpha / size * _neighbors(x * x, size)) ** -beta)


def lrn_backward(x: Array, dy: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    base = k + alpha / size * _neighbors(x * x, size)
    inner = dy * x * base ** (-beta - 1)
    # The channels whose windows contain this one: the mirrored window.
    around = _neighbors(inner[:, ::-1], size)[:, ::-1]
    return np.asarray(dy * base**-beta - 2 * alpha * beta / size * x * around)


def softmax_loss(scores: Array, labels: Array, weight: float, smoothing: float = 0.0) -> tuple[float, Array]:
    shifted = scores - scores.max(axis=1, keepdims=True)
    softmax = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    truth = np.full(scores.shape, smoothing / scores.shape[1])
    truth[np.arange(len(labels)), labels] += 1 - smoothing
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-(truth * logarithms).sum(axis=1).mean()), (softmax - truth) * weight / len(labels)


@dataclass(frozen=True)
class Rule:
    method: OptimizerKind
    rate: float
    trust: float
    epsilon: float
    momentum: float
    second_momentum: float
    step: int


def update(
    rule: Rule, w: Array, g: Array, m: Array, v: Array, *, decay: float, adapted: bool
) -> tuple[Array, Array, Array]:
    """New values, momenta and second momenta, as PyTorch (SGD) and the papers (LARS, LAMB) define them."""
    slope = g + decay * w
    if rule.method == OptimizerKind.LAMB:
        m = rule.momentum * m + (1 - rule.momentum) * g
        v = rule.second_momentum * v + (1 - rule.second_momentum) * g**2
        unbiased = m / (1 - rule.momentum**rule.step), v / (1 - rule.second_momentum**rule.step)
        direction = unbiased[0] / (np.sqrt(unbiased[1]) + rule.epsilon) + decay * w
        ratio = np.linalg.norm(w) / np.linalg.norm(direction) if adapted and w.any() and direction.any() else 1.0
        return w - rule.rate * ratio * direction, m, v
    if rule.method == OptimizerKind.LARS:
        norm = np.linalg.norm(w)
        ratio = rule.trust * norm / (np.linalg.norm(g) + decay * norm) if adapted and w.any() and g.any() else 1.0
        m = rule.momentum * m + rule.rate * ratio * slope
        return w - m, m, v
    m = rule.momentum * m + slope
    return w - rule.rate * (slope + rule.momentum * m if rule.method == OptimizerKind.NESTEROV else m), m, v


def augment(
    images: Array, views: Array, size: tuple[int, int], colors: Array | None, mean: Array, inv_std: Array
) -> Array:
    out = np.stack([_viewed(image, view, size) for image, view in zip(images, views, strict=True)]) / 255
    if colors is not None:
        out = np.einsum("nhwk,nck->nhwc", out, colors[:, :, :3]) + colors[:, None, None, :, 3]
    normal: Array = (out - mean) * inv_std
    return normal


def _viewed(image: Array, view: Array, size: tuple[int, int]) -> Array:
    top, left, height, width, flip, _ = view
    if (height, width) == size:
        room = max(size) + max(image.shape) + 16
        padded = np.pad(image, ((room, room), (room, room), (0, 0)))
        out = padded[room + top : room + top + height, room + left : room + left + width].astype(float)
    else:
        window = image[top : top + height, left : left + width].astype(float)
        out = _resized(_resized(window, size[0]).swapaxes(0, 1), size[1]).swapaxes(0, 1)
    return out[:, ::-1] if flip else out


def _resized(rows: Array, count: int) -> Array:
    """Bilinear interpolation along the first axis, with pixel centers at half-integers."""
    places = np.clip((np.arange(count) + 0.5) * len(rows) / count - 0.5, 0, len(rows) - 1)
    before = places.astype(int)
    after, beyond = np.minimum(before + 1, len(rows) - 1), (places - before)[:, None, None]
    mixed: Array = rows[before] * (1 - beyond) + rows[after] * beyond
    return mixed
