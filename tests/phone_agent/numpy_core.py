"""A stand-in for the core: runs the same programs on the same memory, one numpy expression a step.

With it the planner is tested without the kernels: what is wrong here is a wrong program.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.backends.reference_layers import keep_mask
from phone_agent.core import ops
from phone_agent.core.ops import Kind, Pooling
from phone_agent.core.thread_pool import Program
from tests.phone_agent.core import oracle

Array = NDArray[Any]


class NumpyThreadPool:
    def __init__(self, threads: int, isa: str | None = None, workspace_bytes: int = 0) -> None:
        self.threads = threads

    def run(
        self, program: Program, first: int = 0, last: int | None = None, nanoseconds: NDArray[np.int64] | None = None
    ) -> None:
        for index in range(first, len(program) if last is None else last):
            kind = Kind(program.steps[index].kind)
            _RUN[kind](program.structs[index])

    def close(self) -> None:
        pass


def _floats(address: int, count: int, dtype: Any = np.float32) -> Array:
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


def _rows(address: int, rows: int, channels: int, ld: int, dtype: Any = np.float32) -> Array:
    """A view: rows of channels, the last one without what would lie behind it."""
    flat = _floats(address, (rows - 1) * ld + channels, dtype)
    return np.lib.stride_tricks.as_strided(flat, (rows, channels), (ld * flat.itemsize, flat.itemsize))


def _seen(x: Any, rows: int, channels: int) -> Array:
    data = _rows(x.data, rows, channels, x.ld).astype(np.float64)
    if not x.scale:
        return data
    return oracle.seen(data, _floats(x.scale, channels), _floats(x.shift, channels), x.act)


def _norm(address: int) -> Any:
    return ops.BatchNorm.from_address(address)


def _vector(norm: Any, name: str) -> Array:
    return _floats(getattr(norm, name), norm.channels)


def _statistics(norm: Any, z: Array) -> None:
    mean, inv_std, variance = oracle.statistics(z, norm.epsilon)
    _vector(norm, "mean")[:] = mean
    _vector(norm, "inv_std")[:] = inv_std
    for name, batch in (("running_mean", mean), ("running_var", variance)):
        _vector(norm, name)[:] += norm.momentum * (batch - _vector(norm, name))
    _scales(norm, mean, inv_std)


def _scales(norm: Any, mean: Array, inv_std: Array) -> None:
    scale = _vector(norm, "gamma") * inv_std
    _vector(norm, "scale")[:] = scale
    _vector(norm, "shift")[:] = _vector(norm, "beta") - mean * scale


def _sink(s: Any, gradient: Array) -> None:
    rows, channels = gradient.shape
    target = _rows(s.data, rows, channels, s.ld)
    if s.accumulate:
        gradient = gradient + target
    if s.norm:
        norm, z = _norm(s.norm), _rows(s.y, rows, channels, s.ld_y)
        gradient = oracle.passed(gradient, z * _vector(norm, "scale") + _vector(norm, "shift"), s.act)
        sums = _floats(norm.sums, 2 * channels, np.float64)
        sums[:] = oracle.gradient_sums(gradient, z, _vector(norm, "mean")).ravel()
    elif s.act:
        gradient = oracle.passed(gradient, _rows(s.y, rows, channels, s.ld_y), s.act)
    target[:] = gradient


def _image(g: Any) -> tuple[int, int, int, int]:
    return g.batch, g.in_h, g.in_w, g.in_c


def _result(g: Any) -> tuple[int, int, int, int]:
    return g.batch, g.out_h, g.out_w, g.out_c


def _pixels(shape: tuple[int, int, int, int]) -> tuple[int, int]:
    return shape[0] * shape[1] * shape[2], shape[3]


def _weights(address: int, g: Any) -> Array:
    shape = (g.kernel_h, g.kernel_w, g.in_c // g.groups, g.out_c)
    return _floats(address, int(np.prod(shape))).reshape(shape)


def conv_forward(op: Any) -> None:
    x = _seen(op.x, *_pixels(_image(op.g))).reshape(_image(op.g))
    z = oracle.conv_forward(op.g, x, _weights(op.weights, op.g)).reshape(_pixels(_result(op.g)))
    if op.bias:
        z = z + _floats(op.bias, op.g.out_c)
    _rows(op.y, *z.shape, op.ld_y)[:] = oracle.activate(z, op.act)
    if op.norm:
        assert not op.bias
        assert not op.act
        _statistics(_norm(op.norm), z)


def conv_backward_data(op: Any) -> None:
    dy = _rows(op.dy, *_pixels(_result(op.g)), op.ld_dy).reshape(_result(op.g))
    dx = oracle.conv_backward_data(op.g, dy, _weights(op.weights, op.g))
    _sink(op.dx, dx.reshape(_pixels(_image(op.g))))


def conv_backward_weights(op: Any) -> None:
    x = _seen(op.x, *_pixels(_image(op.g))).reshape(_image(op.g))
    dy = _rows(op.dy, *_pixels(_result(op.g)), op.ld_dy)
    _weights(op.dweights, op.g)[:] = oracle.conv_backward_weights(op.g, x, dy.reshape(_result(op.g)))
    if op.dbias:
        _floats(op.dbias, op.g.out_c)[:] = dy.sum(axis=0)


def pool_forward(op: Any) -> None:
    x = _seen(op.x, *_pixels(_image(op.g))).reshape(_image(op.g))
    if op.pooling == Pooling.AVERAGE:
        y = oracle.average_pool_forward(op.g, x, count_padding=bool(op.count_padding))
    else:
        y, argmax = oracle.max_pool_forward(op.g, x)
        if op.argmax:
            _floats(op.argmax, argmax.size, np.uint8)[:] = argmax.ravel()
    _rows(op.y, *_pixels(_result(op.g)), op.ld_y)[:] = y.reshape(_pixels(_result(op.g)))


def pool_backward(op: Any) -> None:
    dy = _rows(op.dy, *_pixels(_result(op.g)), op.ld_dy).reshape(_result(op.g))
    if op.pooling == Pooling.AVERAGE:
        dx = oracle.average_pool_backward(op.g, dy, count_padding=bool(op.count_padding))
    else:
        dx = oracle.max_pool_backward(op.g, dy, _floats(op.argmax, dy.size, np.uint8).reshape(dy.shape))
    _sink(op.dx, dx.reshape(_pixels(_image(op.g))))


def norm_forward(op: Any) -> None:
    norm = _norm(op.norm)
    _statistics(norm, _rows(op.z, op.rows, norm.channels, op.ld_z).astype(np.float64))


def norm_fold(op: Any) -> None:
    norm = _norm(op.norm)
    inv_std = 1 / np.sqrt(_vector(norm, "running_var") + norm.epsilon)
    _scales(norm, _vector(norm, "running_mean"), inv_std)


def norm_backward(op: Any) -> None:
    norm = _norm(op.norm)
    z = _rows(op.z, op.rows, norm.channels, op.ld_z).astype(np.float64)
    gradient = _rows(op.dy, op.rows, norm.channels, op.ld_dy).astype(np.float64)
    if op.reduced:
        given = _floats(norm.sums, 2 * norm.channels, np.float64).reshape(2, -1)
        np.testing.assert_allclose(given, oracle.gradient_sums(gradient, z, _vector(norm, "mean")), 1e-3, 1e-3)
    else:
        gradient = oracle.passed(gradient, z * _vector(norm, "scale") + _vector(norm, "shift"), op.act)
    dz, dgamma, dbeta = oracle.norm_backward(
        gradient, z, *(_vector(norm, name) for name in ("gamma", "mean", "inv_std"))
    )
    _vector(norm, "dgamma")[:], _vector(norm, "dbeta")[:] = dgamma, dbeta
    _rows(op.dz, op.rows, norm.channels, op.ld_dz)[:] = dz


def join_forward(op: Any) -> None:
    y = _seen(op.a, op.rows, op.channels)
    if op.b.data:
        y = y + _seen(op.b, op.rows, op.channels)
    _rows(op.y, op.rows, op.channels, op.ld_y)[:] = oracle.activate(y, op.act)


def join_backward(op: Any) -> None:
    gradient = _rows(op.dy, op.rows, op.channels, op.ld_dy)
    if op.act:
        gradient = oracle.passed(gradient, _rows(op.y, op.rows, op.channels, op.ld_y), op.act)
    target = _rows(op.target, op.rows, op.channels, op.ld_target)
    target[:] = gradient + target if op.accumulate else gradient


def lrn_forward(op: Any) -> None:
    x = _seen(op.x, op.rows, op.channels)
    _rows(op.y, op.rows, op.channels, op.ld_y)[:] = oracle.lrn_forward(x, op.size, op.alpha, op.beta, op.k)


def lrn_backward(op: Any) -> None:
    x, dy = _seen(op.x, op.rows, op.channels), _rows(op.dy, op.rows, op.channels, op.ld_dy)
    _sink(op.dx, oracle.lrn_backward(x, dy, op.size, op.alpha, op.beta, op.k))


def _kept(op: Any) -> Array:
    draw = int(_floats(op.seed, 1, np.uint64)[0])
    kept = keep_mask(op.rows * op.channels, op.rate, draw, op.salt).reshape(op.rows, op.channels)
    return np.asarray(kept / (1 - op.rate))


def dropout_forward(op: Any) -> None:
    _rows(op.y, op.rows, op.channels, op.ld_y)[:] = _seen(op.x, op.rows, op.channels) * _kept(op)


def dropout_backward(op: Any) -> None:
    _sink(op.dx, _rows(op.dy, op.rows, op.channels, op.ld_dy) * _kept(op))


def softmax_loss(op: Any) -> None:
    scores = _rows(op.logits, op.batch, op.classes, op.ld_logits).astype(np.float64)
    loss, dscores = oracle.softmax_loss(
        scores, _floats(op.labels, op.batch, np.int32), float(_floats(op.weight, 1)[0]), op.smoothing
    )
    _rows(op.dlogits, op.batch, op.classes, op.ld_dlogits)[:] = dscores
    _floats(op.loss, 1, np.float64)[0] = loss


_RUN = {
    Kind.CONV_FORWARD: conv_forward,
    Kind.CONV_BACKWARD_DATA: conv_backward_data,
    Kind.CONV_BACKWARD_WEIGHTS: conv_backward_weights,
    Kind.DEPTHWISE_FORWARD: conv_forward,
    Kind.DEPTHWISE_BACKWARD_DATA: conv_backward_data,
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: conv_backward_weights,
    Kind.POOLING_FORWARD: pool_forward,
    Kind.POOLING_BACKWARD: pool_backward,
    Kind.BATCH_NORM_FORWARD: norm_forward,
    Kind.BATCH_NORM_FOLD: norm_fold,
    Kind.BATCH_NORM_BACKWARD: norm_backward,
    Kind.ADD_FORWARD: join_forward,
    Kind.ADD_BACKWARD: join_backward,
    Kind.LRN_FORWARD: lrn_forward,
    Kind.LRN_BACKWARD: lrn_backward,
    Kind.DROPOUT_FORWARD: dropout_forward,
    Kind.DROPOUT_BACKWARD: dropout_backward,
    Kind.SOFTMAX_LOSS: softmax_loss,
}
