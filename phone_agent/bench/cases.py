"""Single steps of the core with real shapes and random numbers: what `bench kernels` times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import Structure, addressof
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.wire import BF16, FP16, INT8
from phone_agent.core import ops
from phone_agent.core.ops import Kind, OptimizerKind
from phone_agent.core.thread_pool import aligned


@dataclass
class Case:
    """One op, ready to run. `flops` are those of the direct method; `bytes` each operand read or written once."""

    name: str
    shape: str
    kind: Kind
    op: Structure
    flops: float = 0.0
    bytes: float = 0.0
    held: list[Any] = field(default_factory=list)  # what the op points to


class Tensors:
    """Allocates what ops point to, and holds references to it."""

    def __init__(self, threads: int, seed: int = 0) -> None:
        self.threads = threads
        self.held: list[Any] = []
        self._numbers = np.random.default_rng(seed)

    def floats(self, *shape: int) -> NDArray[np.float32]:
        made = self._hold(aligned(int(np.prod(shape))))
        self._numbers.standard_normal(out=made, dtype=np.float32)
        return made

    def zeros(self, count: int, dtype: Any = np.float32) -> NDArray[Any]:
        return self._hold(aligned(count, dtype))

    def array(self, values: Any, dtype: Any) -> NDArray[Any]:
        made = self._hold(aligned(len(values), dtype))
        made[:] = values
        return made

    def norm(self, channels: int) -> int:
        """The address of one; its batch has mean 0 and variance 1."""
        zero, one = ([value] * channels for value in (0.0, 1.0))
        fields = {
            name: self.array(values, np.float32).ctypes.data
            for values, names in (
                (one, ("gamma", "inv_std", "scale", "running_var")),
                (zero, ("beta", "mean", "shift", "running_mean", "dgamma", "dbeta")),
            )
            for name in names
        }
        sums = self.zeros(self.threads * 2 * channels, np.float64).ctypes.data
        made = ops.BatchNorm(sums=sums, epsilon=1e-5, momentum=0.1, channels=channels, accumulate=0, **fields)
        self.held.append(made)
        return addressof(made)

    def _hold(self, array: NDArray[Any]) -> NDArray[Any]:
        self.held.append(array)
        return array


def geometry(  # noqa: PLR0917 - as one writes a layer down
    batch: int,
    size: int,
    channels: int,
    filters: int,
    kernel: int = 1,
    stride: int = 1,
    *,
    dilation: int = 1,
    groups: int = 1,
) -> ops.Geometry:
    """Padded so that a stride of 1 keeps the size."""
    pad = kernel // 2 * dilation
    out = (size + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
    sides = (batch, size, size, channels, out, out, filters, kernel, kernel)
    return ops.Geometry(*sides, stride, pad, pad, dilation, groups)


def convolution(kind: Kind, g: ops.Geometry, algorithm: ops.Algorithm, threads: int, name: str = "") -> Case:
    """Any of the six convolution kinds, without fused neighbors."""
    made = Tensors(threads)
    x = made.floats(g.batch, g.in_h, g.in_w, g.in_c)
    y = made.floats(g.batch, g.out_h, g.out_w, g.out_c)
    taps = g.kernel_h * g.kernel_w * (g.in_c // g.groups)
    weights = made.floats(taps, g.out_c)
    if kind in {Kind.CONV_FORWARD, Kind.DEPTHWISE_FORWARD}:
        op: Structure = ops.ConvForward(
            g=g, x=_fused_input(x, g.in_c), weights=_at(weights), y=_at(y), ld_y=g.out_c, algorithm=algorithm
        )
    elif kind in {Kind.CONV_BACKWARD_DATA, Kind.DEPTHWISE_BACKWARD_DATA}:
        op = ops.ConvBackwardData(
            g=g, dy=_at(y), weights=_at(weights), dx=_fused_gradient(x, g.in_c), ld_dy=g.out_c, algorithm=algorithm
        )
    else:
        op = ops.ConvBackwardWeights(
            g=g, x=_fused_input(x, g.in_c), dy=_at(y), dweights=_at(weights), ld_dy=g.out_c, algorithm=algorithm
        )
    flops = 2.0 * g.batch * g.out_h * g.out_w * g.out_c * taps
    return Case(name or kind.name.lower(), shape_of(g), kind, op, flops, _bytes(x, y, weights), made.held)


def shape_of(g: ops.Geometry) -> str:
    marks = (("s", g.stride), ("d", g.dilation), ("g", g.groups))
    more = "".join(f" {mark}{value}" for mark, value in marks if value > 1)
    return f"{g.kernel_h}x{g.kernel_w}{more} {g.in_c}->{g.out_c} @{g.in_h} b{g.batch}"


def all_cases(threads: int, only: str = "") -> Iterator[Case]:
    """Those with `only` in their name, made one by one: together they would need gigabytes."""
    for layer in _layers():
        if only in layer.name:
            yield convolution(layer.kind, layer.g, layer.algorithm, threads, layer.name)
    for names_of_it, make in _TOGETHER:
        if any(only in name for name in names_of_it):
            yield from (case for case in make(threads) if only in case.name)


def names() -> tuple[str, ...]:
    """Of all cases, each once."""
    together = (name for names_of_it, _ in _TOGETHER for name in names_of_it)
    return tuple(dict.fromkeys([*(layer.name for layer in _layers()), *together]))


@dataclass(frozen=True)
class _Layer:
    """A convolution to be measured, without its tensors."""

    name: str
    kind: Kind
    g: ops.Geometry
    algorithm: ops.Algorithm = ops.Algorithm.DIRECT


_CONVOLUTIONS = (
    (4, 56, 64, 64, 3),
    (4, 14, 256, 256, 3),
    (4, 7, 512, 512, 3),
    (4, 56, 64, 256, 1),
    (4, 14, 1024, 256, 1),
    (4, 224, 3, 64, 7, 2),
    (32, 1, 4096, 4096, 1),
)
_DIRECTIONS = (Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS)
_BY_CHANNEL = (Kind.DEPTHWISE_FORWARD, Kind.DEPTHWISE_BACKWARD_DATA, Kind.DEPTHWISE_BACKWARD_WEIGHTS)


def _layers() -> Iterator[_Layer]:
    for dims in _CONVOLUTIONS:
        g = geometry(*dims)
        for kind in _DIRECTIONS:
            if g.in_c > 3 or kind != Kind.CONV_BACKWARD_DATA:
                yield _Layer(kind.name.lower(), kind, g)
    for dims in _CONVOLUTIONS[:3]:
        for algorithm in (ops.Algorithm.WINOGRAD2, ops.Algorithm.WINOGRAD4):
            for kind in _DIRECTIONS:
                yield _Layer(f"{kind.name} {algorithm.name}".lower(), kind, geometry(*dims), algorithm)
    for kind in _DIRECTIONS:
        yield _Layer(f"{kind.name.lower()} grouped", kind, geometry(8, 27, 96, 256, 5, groups=2))
        yield _Layer(f"{kind.name.lower()} dilated", kind, geometry(4, 28, 128, 128, 3, dilation=2))
    for batch, size, channels, stride in ((8, 112, 64, 2), (8, 56, 128, 1), (8, 14, 512, 1)):
        for kind in _BY_CHANNEL:
            yield _Layer(kind.name.lower(), kind, geometry(batch, size, channels, channels, 3, stride, groups=channels))


def _pools(threads: int) -> Iterator[Case]:
    g = geometry(4, 112, 64, 64, 3, 2)
    for pooling in (ops.Pooling.MAX, ops.Pooling.AVERAGE):
        made = Tensors(threads)
        x, y = made.floats(g.batch, g.in_h, g.in_w, g.in_c), made.floats(g.batch, g.out_h, g.out_w, g.out_c)
        argmax = made.zeros(y.size, np.uint8)
        common = {"g": g, "argmax": _at(argmax), "pooling": pooling, "count_padding": 1}
        forward = ops.PoolingForward(x=_fused_input(x, g.in_c), y=_at(y), ld_y=g.out_c, **common)
        backward = ops.PoolingBackward(dy=_at(y), dx=_fused_gradient(x, g.in_c), ld_dy=g.out_c, **common)
        moved = _bytes(x, y, argmax) if pooling == ops.Pooling.MAX else _bytes(x, y)
        for kind, op in ((Kind.POOLING_FORWARD, forward), (Kind.POOLING_BACKWARD, backward)):
            yield Case(f"{kind.name} {pooling.name}".lower(), shape_of(g), kind, op, 0.0, moved, made.held)


_ROWS, _CHANNELS = 4 * 56 * 56, 256


def _norms(threads: int) -> Iterator[Case]:
    made = Tensors(threads)
    z, dy = made.floats(_ROWS, _CHANNELS), made.floats(_ROWS, _CHANNELS)
    norm = made.norm(_CHANNELS)
    forward = ops.BatchNormForward(norm=norm, z=_at(z), rows=_ROWS, ld_z=_CHANNELS)
    backward = ops.BatchNormBackward(
        norm=norm, z=_at(z), dy=_at(dy), dz=_at(dy), rows=_ROWS,
        ld_z=_CHANNELS, ld_dy=_CHANNELS, ld_dz=_CHANNELS, act=ops.Act.RELU,
    )  # fmt: skip
    yield _rows(Kind.BATCH_NORM_FORWARD, forward, _bytes(z), made)
    yield _rows(Kind.BATCH_NORM_BACKWARD, backward, 2 * _bytes(z, dy) + _bytes(dy), made)


def _joins(threads: int) -> Iterator[Case]:
    made = Tensors(threads)
    a, b, y = (made.floats(_ROWS, _CHANNELS) for _ in range(3))
    sizes = {"rows": _ROWS, "channels": _CHANNELS, "ld_y": _CHANNELS, "act": ops.Act.RELU}
    forward = ops.AddForward(a=_fused_input(a, _CHANNELS), b=_fused_input(b, _CHANNELS), y=_at(y), **sizes)
    backward = ops.AddBackward(dy=_at(a), y=_at(y), target=_at(b), ld_dy=_CHANNELS, ld_target=_CHANNELS, **sizes)
    yield _rows(Kind.ADD_FORWARD, forward, _bytes(a, b, y), made)
    yield _rows(Kind.ADD_BACKWARD, backward, _bytes(a, b, y), made)


def _others(threads: int) -> Iterator[Case]:
    made = Tensors(threads)
    x, y, dx = (made.floats(_ROWS, _CHANNELS) for _ in range(3))
    draw = made.array([7], np.uint64)
    sizes = {"rows": _ROWS, "channels": _CHANNELS}
    lrn = {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0, **sizes}
    drop = {"seed": _at(draw), "rate": 0.5, "salt": 1, **sizes}
    source, sink = _fused_input(x, _CHANNELS), _fused_gradient(dx, _CHANNELS)
    yield _rows(Kind.LRN_FORWARD, ops.LrnForward(x=source, y=_at(y), ld_y=_CHANNELS, **lrn), _bytes(x, y), made)
    lrn_backward = ops.LrnBackward(x=source, dy=_at(y), dx=sink, ld_dy=_CHANNELS, **lrn)
    yield _rows(Kind.LRN_BACKWARD, lrn_backward, _bytes(x, y, dx), made)
    dropout = ops.DropoutForward(x=source, y=_at(y), ld_y=_CHANNELS, **drop)
    yield _rows(Kind.DROPOUT_FORWARD, dropout, _bytes(x, y), made)
    dropout_backward = ops.DropoutBackward(dy=_at(y), dx=sink, ld_dy=_CHANNELS, **drop)
    yield _rows(Kind.DROPOUT_BACKWARD, dropout_backward, _bytes(y, dx), made)


def _softmax(threads: int, batch: int = 64, classes: int = 1000) -> Iterator[Case]:
    made = Tensors(threads)
    logits, dlogits = made.floats(batch, classes), made.floats(batch, classes)
    op = ops.SoftmaxLoss(
        logits=_at(logits), dlogits=_at(dlogits), labels=_at(made.zeros(batch, np.int32)),
        weight=_at(made.array([1.0], np.float32)), loss=_at(made.zeros(1, np.float64)),
        batch=batch, classes=classes, ld_logits=classes, ld_dlogits=classes,
    )  # fmt: skip
    shape = f"{batch} x {classes}"
    yield Case("softmax_loss", shape, Kind.SOFTMAX_LOSS, op, 0.0, _bytes(logits, dlogits), made.held)


_TOUCHED = {
    OptimizerKind.SGD: 5.0,
    OptimizerKind.NESTEROV: 5.0,
    OptimizerKind.LARS: 7.0,
    OptimizerKind.LAMB: 10.0,
}  # times all values


def _updates(threads: int, count: int = 8 * 1024 * 1024) -> Iterator[Case]:
    """All values as one parameter. The rate is 0: so often repeated, any other leads nowhere."""
    made = Tensors(threads)
    values, gradients = made.floats(count), made.floats(count)
    momenta, second = made.zeros(count), made.zeros(count)
    params = ops.OptimizerParams(
        momentum=0.9, one_minus_momentum=0.1, bias_correction=1.0, beta2=0.999, one_minus_beta2=0.001
    )
    params.bias_correction2, params.epsilon, params.trust_coefficient = 1.0, 1e-6, 0.001
    segment = ops.Segment(0, count, 1e-4, 1)
    for method, touched in _TOUCHED.items():
        op = ops.OptimizerUpdate(
            weights=_at(values), momenta=_at(momenta), second_moments=_at(second), gradients=_at(gradients),
            params=addressof(params), segments=addressof(segment), count=1, optimizer=method,
        )  # fmt: skip
        held = [*made.held, params, segment]
        name, shape = f"optimizer_update {method.name.lower()}", f"{count // 1024**2} M"
        yield Case(name, shape, Kind.OPTIMIZER_UPDATE, op, 0.0, touched * _bytes(values), held)


def _wires(threads: int, count: int = 8 * 1024 * 1024) -> Iterator[Case]:
    made = Tensors(threads)
    values, residual = made.floats(count), made.zeros(count)
    received, room = made.zeros(4 * count, np.uint8), made.zeros(4 * count, np.uint8)
    shape = f"{count // 1024**2} M"
    for wire in (FP16, BF16, INT8):
        feedback = _at(residual) if wire.error_feedback else None
        common = {"values": _at(values), "count": count, "dtype": wire.dtype}
        encode = ops.Encode(received=_at(received), encoded=_at(room), residual=feedback, **common)
        decode = ops.Decode(encoded=_at(received), **common)
        sent, feedback_bytes = float(wire.size(count)), 2 * _bytes(residual) if wire.error_feedback else 0.0
        moved = _bytes(values) + 2 * sent + feedback_bytes
        yield Case(f"encode {wire.name}", shape, Kind.ENCODE, encode, 0.0, moved, made.held)
        yield Case(f"decode {wire.name}", shape, Kind.DECODE, decode, 0.0, _bytes(values) + sent, made.held)


def _factors(threads: int, rows: int = 9 * 512, columns: int = 512, rank: int = 4) -> Iterator[Case]:
    made = Tensors(threads)
    matrix, residual = made.floats(rows, columns), made.zeros(rows * columns)
    left, right, own = made.floats(rows, rank), made.floats(rank, columns), made.floats(rank, columns)
    op = ops.LowRank(
        matrix=_at(matrix), residual=_at(residual), left=_at(left), right=_at(right), local_right=_at(own),
        rows=rows, columns=columns, rank=rank,
    )  # fmt: skip
    moved = {
        Kind.LOWRANK_SKETCH: _bytes(matrix, residual, matrix),
        Kind.LOWRANK_ORTHONORMALIZE: _bytes(left, left),
        Kind.LOWRANK_PROJECT: _bytes(matrix),
        Kind.LOWRANK_RECONSTRUCT: _bytes(matrix, residual, matrix),
    }
    for kind, moves in moved.items():
        shape = f"{rows} x {columns} rank {rank}"
        yield Case(kind.name.lower(), shape, kind, op, 0.0, moves, made.held)


def _augment(threads: int, batch: int = 16, size: int = 256, crop: int = 224) -> Iterator[Case]:
    made = Tensors(threads)
    images = made.zeros(batch * size * size * 3, np.uint8)
    out = made.zeros(batch * crop * crop * 3)
    op = ops.Augment(
        images=_at(images), crops=_at(made.array([5, 9, crop, crop, 1, 0] * batch, np.int32)),
        mean=_at(made.array([0.5] * 3, np.float32)), inv_std=_at(made.array([4.0] * 3, np.float32)), out=_at(out),
        batch=batch, in_h=size, in_w=size, out_h=crop, out_w=crop, channels=3,
    )  # fmt: skip
    yield Case("augment", f"{batch} x {size} to {crop}", Kind.AUGMENT, op, 0.0, _bytes(out) * 1.25, made.held)


def _doubles(threads: int, size: int = 1536, depth: int = 128) -> Iterator[Case]:
    """As LINPACK updates what is left of its matrix."""
    made = Tensors(threads)
    a, b, c = (made.zeros(count, np.float64) for count in (depth * size, depth * size, size * size))
    a[:], b[:] = made.floats(a.size), made.floats(b.size)
    op = ops.Dgemm(
        a=_at(a), b=_at(b), c=_at(c), alpha=-1.0, rows=size, columns=size, depth=depth,
        lda=size, ldb=size, ldc=size, accumulate=1,
    )  # fmt: skip
    flops = 2.0 * size * size * depth
    yield Case("dgemm", f"{size} x {size} x {depth}", Kind.DGEMM, op, flops, _bytes(a, b, c, c), made.held)


def _column(threads: int, rows: int = 8192, beside: int = 7) -> Iterator[Case]:
    """As LINPACK eliminates one of a panel. By zero: so often repeated, anything else leads nowhere."""
    made = Tensors(threads)
    columns, factors = made.zeros((beside + 1) * rows, np.float64), made.zeros(beside, np.float64)
    op = ops.Eliminate(
        column=_at(columns), factors=_at(factors), next_pivot=_at(made.zeros(1, np.int64)),
        pivot=1.0, rows=rows, ld=rows, trailing_columns=beside,
    )  # fmt: skip
    yield Case("eliminate", f"{rows} x {beside + 1}", Kind.ELIMINATE, op, 0.0, 2 * _bytes(columns), made.held)


def _rows(kind: Kind, op: Structure, moved: float, made: Tensors) -> Case:
    return Case(kind.name.lower(), f"{_ROWS} x {_CHANNELS}", kind, op, 0.0, moved, made.held)


# Cases that share tensors, with their names: what is not asked for is not made.
_TOGETHER: tuple[tuple[tuple[str, ...], Callable[[int], Iterator[Case]]], ...] = (
    (("pooling_forward max", "pooling_backward max", "pooling_forward average", "pooling_backward average"), _pools),
    (("batch_norm_forward", "batch_norm_backward"), _norms),
    (("add_forward", "add_backward"), _joins),
    (("lrn_forward", "lrn_backward", "dropout_forward", "dropout_backward"), _others),
    (("softmax_loss",), _softmax),
    (tuple(f"optimizer_update {method.name.lower()}" for method in _TOUCHED), _updates),
    (("encode fp16", "decode fp16", "encode bf16", "decode bf16", "encode int8", "decode int8"), _wires),
    (("lowrank_sketch", "lowrank_orthonormalize", "lowrank_project", "lowrank_reconstruct"), _factors),
    (("augment",), _augment),
    (("dgemm",), _doubles),
    (("eliminate",), _column),
)


def _fused_input(x: NDArray[Any], ld: int) -> ops.FusedInput:
    return ops.FusedInput(data=_at(x), ld=ld)


def _fused_gradient(dx: NDArray[Any], ld: int) -> ops.FusedGradient:
    return ops.FusedGradient(data=_at(dx), ld=ld)


def _at(array: NDArray[Any]) -> int:
    address: int = array.ctypes.data
    return address


def _bytes(*arrays: NDArray[Any]) -> float:
    return float(sum(array.nbytes for array in arrays))
