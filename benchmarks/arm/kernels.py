"""Every kernel of the core, on shapes from the networks that are small enough to emulate in a second.

`flops` are those of the direct method; `bytes` count each operand once, read or written.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import Structure
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.plan.forecast.device_model import UPDATE_ACCESSES
from phone_agent.core import ops
from phone_agent.core.ops import Act, Algorithm, DType, Geometry, Kind, OptimizerKind, Pooling
from tests.phone_agent.core.memory import Memory, block, struct

CONVOLUTIONS = (Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS)
BY_CHANNEL = (Kind.DEPTHWISE_FORWARD, Kind.DEPTHWISE_BACKWARD_DATA, Kind.DEPTHWISE_BACKWARD_WEIGHTS)
IMAGE_CHANNELS = 3  # channels of an image


@dataclass(frozen=True)
class Kernel:
    name: str
    kind: Kind
    op: Memory
    flops: float = 0.0
    bytes: float = 0.0
    in_double: bool = False  # half as many lanes per vector


def geometry(
    size: int, channels: int, filters: int, kernel: int = 1, stride: int = 1, *, batch: int = 1, groups: int = 1
) -> Geometry:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    return Geometry(batch, size, size, channels, out, out, filters, kernel, kernel, stride, pad, pad, 1, groups)


def kernels() -> Iterator[Kernel]:
    yield from _convolutions()
    yield from _depthwise()
    yield from _pools()
    yield from _rows()
    yield from _losses()
    yield from _updates()
    yield from _wires()
    yield from _factors()
    yield from _augments()
    yield _doubles()
    yield _column()


def _floats(name: str, count: float) -> Memory:
    return block(name, np.random.default_rng(int(count)).standard_normal(int(count), np.float32))


def _bytes_of(*parts: Memory) -> float:
    return float(sum(part.data.nbytes for part in parts))


def _part(made: Structure) -> Memory:
    return Memory(type(made).__name__, np.frombuffer(bytes(made), np.uint8).copy())


def _convolutions() -> Iterator[Kernel]:
    direct = {
        "1x1": geometry(14, 256, 128),
        "3x3": geometry(14, 64, 64, 3),
        "7x7 s2 image": geometry(28, 3, 64, 7, 2),
        "fully connected": geometry(1, 1024, 128, batch=32),
    }
    for name, g in direct.items():
        for kind in CONVOLUTIONS:
            if g.in_c > IMAGE_CHANNELS or kind != Kind.CONV_BACKWARD_DATA:
                yield _convolution(f"{kind.name.lower()} {name}", kind, g)
    for algorithm in (Algorithm.WINOGRAD2, Algorithm.WINOGRAD4):
        for kind in CONVOLUTIONS:
            yield _convolution(f"{kind.name} {algorithm.name}".lower(), kind, geometry(28, 64, 64, 3), algorithm)


def _depthwise() -> Iterator[Kernel]:
    for stride in (1, 2):
        for kind in BY_CHANNEL:
            yield _convolution(f"{kind.name.lower()} s{stride}", kind, geometry(28, 128, 128, 3, stride, groups=128))


def _convolution(name: str, kind: Kind, g: Geometry, algorithm: Algorithm = Algorithm.DIRECT) -> Kernel:
    """As in a network: forward reads a normalized input and computes the statistics of its output, and backward applies
    the mask. An image, however, is read as it is."""
    taps = g.kernel_h * g.kernel_w * (g.in_c // g.groups)
    x, y = _floats("x", g.batch * g.in_h * g.in_w * g.in_c), _floats("y", g.batch * g.out_h * g.out_w * g.out_c)
    weights = _floats("weights", taps * g.out_c)
    source = _plain(x, g.in_c) if g.in_c == IMAGE_CHANNELS else _fused_input(x, g.in_c)
    common: dict[str, Any] = {"g": _part(g), "algorithm": algorithm}
    if kind in {Kind.CONV_FORWARD, Kind.DEPTHWISE_FORWARD}:
        more = {"x": source, "weights": weights, "y": y, "ld_y": g.out_c, "norm": _norm(g.out_c)}
        op = struct(ops.ConvForward, **common, **more)
    elif kind in {Kind.CONV_BACKWARD_DATA, Kind.DEPTHWISE_BACKWARD_DATA}:
        sink = struct(
            ops.FusedGradient,
            data=x,
            y=_floats("z", x.data.size),
            norm=_norm(g.in_c),
            ld=g.in_c,
            ld_y=g.in_c,
            act=Act.RELU,
        )
        op = struct(ops.ConvBackwardData, **common, dy=y, weights=weights, dx=sink, ld_dy=g.out_c)
    else:
        more = {"x": source, "dy": y, "dweights": weights, "ld_dy": g.out_c}
        op = struct(ops.ConvBackwardWeights, **common, **more)
    flops = 2.0 * g.batch * g.out_h * g.out_w * g.out_c * taps
    return Kernel(name, kind, op, flops, _bytes_of(x, y, weights))


def _fused_input(x: Memory, channels: int) -> Memory:
    scale, shift = _floats("scale", channels), _floats("shift", channels)
    return struct(ops.FusedInput, data=x, scale=scale, shift=shift, ld=channels, act=Act.RELU)


def _plain(x: Memory, channels: int) -> Memory:
    return struct(ops.FusedInput, data=x, ld=channels)


def _fused_gradient(dx: Memory, channels: int) -> Memory:
    return struct(ops.FusedGradient, data=dx, ld=channels)


def _norm(channels: int) -> Memory:
    ones = ("gamma", "inv_std", "scale", "running_var")
    zeros = ("beta", "mean", "shift", "running_mean", "dgamma", "dbeta")
    vectors = {name: block(name, np.full(channels, float(name in ones))) for name in (*ones, *zeros)}
    sums = Memory("sums", np.zeros(2 * channels), per_thread=True)
    return struct(ops.BatchNorm, **vectors, sums=sums, epsilon=1e-5, momentum=0.1, channels=channels)


def _pools() -> Iterator[Kernel]:
    g = geometry(28, 64, 64, 3, 2)
    for pooling in (Pooling.MAX, Pooling.AVERAGE):
        x, y = _floats("x", g.in_h * g.in_w * g.in_c), _floats("y", g.out_h * g.out_w * g.out_c)
        argmax = Memory("argmax", np.random.default_rng(0).integers(0, 9, y.data.size, np.uint8))
        common: dict[str, Any] = {"g": _part(g), "pooling": pooling, "count_padding": 1}
        if pooling == Pooling.MAX:
            common["argmax"] = argmax
        forward = struct(ops.PoolingForward, x=_fused_input(x, g.in_c), y=y, ld_y=g.out_c, **common)
        backward = struct(ops.PoolingBackward, dy=y, dx=_fused_gradient(x, g.in_c), ld_dy=g.out_c, **common)
        for kind, op in ((Kind.POOLING_FORWARD, forward), (Kind.POOLING_BACKWARD, backward)):
            yield Kernel(f"{kind.name} {pooling.name}".lower(), kind, op, bytes=_bytes_of(x, y))


def _rows(rows: int = 784, channels: int = 128) -> Iterator[Kernel]:
    x, y, z = (_floats(name, rows * channels) for name in ("x", "y", "z"))
    sizes: dict[str, Any] = {"rows": rows, "channels": channels}
    once = _bytes_of(x)
    norm = _norm(channels)
    forward = struct(ops.BatchNormForward, norm=norm, z=z, rows=rows, ld_z=channels)
    yield Kernel("batch_norm_forward", Kind.BATCH_NORM_FORWARD, forward, bytes=once)
    yield Kernel("batch_norm_fold", Kind.BATCH_NORM_FOLD, struct(ops.BatchNormFold, norm=norm), bytes=24.0 * channels)
    widths = {"ld_z": channels, "ld_dy": channels, "ld_dz": channels}
    for reduced, name in ((0, "batch_norm_backward"), (1, "batch_norm_backward reduced")):
        op = struct(
            ops.BatchNormBackward, norm=norm, z=z, dy=y, dz=y, rows=rows, act=Act.RELU, reduced=reduced, **widths
        )
        yield Kernel(name, Kind.BATCH_NORM_BACKWARD, op, bytes=once * (3 if reduced else 5))
    op = struct(
        ops.AddForward, a=_fused_input(x, channels), b=_plain(z, channels), y=y, ld_y=channels, act=Act.RELU, **sizes
    )
    yield Kernel("add_forward", Kind.ADD_FORWARD, op, bytes=3 * once)
    widths = {"ld_dy": channels, "ld_y": channels, "ld_target": channels}
    op = struct(ops.AddBackward, dy=x, y=y, target=z, act=Act.RELU, accumulate=1, **widths, **sizes)
    yield Kernel("add_backward", Kind.ADD_BACKWARD, op, bytes=4 * once)
    lrn = {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0, **sizes}
    op = struct(ops.LrnForward, x=_plain(x, channels), y=y, ld_y=channels, **lrn)
    yield Kernel("lrn_forward", Kind.LRN_FORWARD, op, bytes=2 * once)
    op = struct(ops.LrnBackward, x=_plain(x, channels), dy=y, dx=_fused_gradient(z, channels), ld_dy=channels, **lrn)
    yield Kernel("lrn_backward", Kind.LRN_BACKWARD, op, bytes=3 * once)
    drop = {"seed": block("seed", np.array([7]), np.uint64), "rate": 0.5, "salt": 1, **sizes}
    op = struct(ops.DropoutForward, x=_plain(x, channels), y=y, ld_y=channels, **drop)
    yield Kernel("dropout_forward", Kind.DROPOUT_FORWARD, op, bytes=2 * once)
    op = struct(ops.DropoutBackward, dy=y, dx=_fused_gradient(z, channels), ld_dy=channels, **drop)
    yield Kernel("dropout_backward", Kind.DROPOUT_BACKWARD, op, bytes=2 * once)


def _losses(batch: int = 16, classes: int = 1000) -> Iterator[Kernel]:
    logits, dlogits = _floats("logits", batch * classes), _floats("dlogits", batch * classes)
    op = struct(
        ops.SoftmaxLoss, logits=logits, dlogits=dlogits, labels=block("labels", np.arange(batch), np.int32),
        weight=block("weight", np.ones(1)), loss=block("loss", np.zeros(1), np.float64), batch=batch, classes=classes,
        ld_logits=classes, ld_dlogits=classes,
    )  # fmt: skip
    yield Kernel("softmax_loss", Kind.SOFTMAX_LOSS, op, bytes=_bytes_of(logits, dlogits))


# How many buffers of all weights are read or written; norms take an extra pass.
TOUCHED = {
    OptimizerKind.SGD: UPDATE_ACCESSES,
    OptimizerKind.NESTEROV: UPDATE_ACCESSES,
    OptimizerKind.LARS: 7,
    OptimizerKind.LAMB: 10,
}


def _updates(count: int = 100_000) -> Iterator[Kernel]:
    params = ops.OptimizerParams(
        lr=0.1, trust_coefficient=0.001, epsilon=1e-6, momentum=0.9, one_minus_momentum=0.1, bias_correction=1.0
    )
    params.beta2, params.one_minus_beta2, params.bias_correction2 = 0.999, 0.001, 1.0
    for method, touched in TOUCHED.items():
        buffers = {name: _floats(name, count) for name in ("weights", "momenta", "gradients")}
        buffers["second_moments"] = block("second_moments", np.ones(count))
        op = struct(
            ops.OptimizerUpdate, **buffers, params=_part(params), segments=_part(ops.Segment(0, count, 1e-4, 1)),
            count=1, optimizer=method,
        )  # fmt: skip
        yield Kernel(f"optimizer_update {method.name.lower()}", Kind.OPTIMIZER_UPDATE, op, bytes=touched * 4 * count)


def _wires(count: int = 64 * 1024) -> Iterator[Kernel]:
    """The work of a rank in a ring: reduce a received chunk, encode the sum, and decode the final sum."""
    sent = {DType.FP32: 4.0, DType.FP16: 2.0, DType.BF16: 2.0, DType.INT8: 1.0}
    for dtype, size in sent.items():
        values, room = _floats("values", count), Memory("target", np.zeros(5 * count, np.uint8))
        received = Memory("received", np.full(5 * count, 60, np.uint8))
        op = struct(ops.Encode, values=values, received=received, encoded=room, count=count, dtype=dtype)
        yield Kernel(f"encode {dtype.name.lower()}", Kind.ENCODE, op, bytes=(4 + 2 * size) * count)
        op = struct(ops.Decode, encoded=received, values=values, count=count, dtype=dtype)
        yield Kernel(f"decode {dtype.name.lower()}", Kind.DECODE, op, bytes=(4 + size) * count)


def _factors(rows: int = 576, columns: int = 128, rank: int = 4) -> Iterator[Kernel]:
    sizes = {"rows": rows, "columns": columns, "rank": rank}
    matrix, residual = _floats("matrix", rows * columns), _floats("residual", rows * columns)
    left, right, own = (
        _floats(name, size * rank) for name, size in (("left", rows), ("right", columns), ("own", columns))
    )
    op = struct(ops.LowRank, matrix=matrix, residual=residual, left=left, right=right, local_right=own, **sizes)
    moved = {
        Kind.LOWRANK_SKETCH: 3 * _bytes_of(matrix),
        Kind.LOWRANK_ORTHONORMALIZE: 2 * _bytes_of(left),
        Kind.LOWRANK_PROJECT: _bytes_of(matrix),
        Kind.LOWRANK_RECONSTRUCT: 3 * _bytes_of(matrix),
    }
    for kind, moves in moved.items():
        yield Kernel(kind.name.lower(), kind, op, bytes=moves)


def _augments(size: int = 72, crop: int = 56) -> Iterator[Kernel]:
    images, out = (
        Memory("images", np.full(IMAGE_CHANNELS * size * size, 99, np.uint8)),
        _floats("out", IMAGE_CHANNELS * crop * crop),
    )
    for name, side in (("cropped", crop), ("resized", 64)):
        op = struct(
            ops.Augment, images=images, crops=block("views", np.array([5, 7, side, side, 1, 0]), np.int32),
            mean=block("mean", np.full(3, 0.5)), inv_std=block("inv_std", np.full(3, 4.0)), out=out, batch=1,
            in_h=size, in_w=size, out_h=crop, out_w=crop, channels=3,
        )  # fmt: skip
        yield Kernel(f"augment {name}", Kind.AUGMENT, op, bytes=1.25 * _bytes_of(out))


def _doubles(rows: int = 96, columns: int = 96, depth: int = 128) -> Kernel:
    draw = np.random.default_rng(depth)
    a, b, c = (block(name, draw.standard_normal(count), np.float64) for name, count in (
        ("a", depth * rows), ("b", depth * columns), ("c", rows * columns),
    ))  # fmt: skip
    op = struct(
        ops.Dgemm, a=a, b=b, c=c, alpha=-1.0, rows=rows, columns=columns, depth=depth,
        lda=rows, ldb=columns, ldc=columns, accumulate=1,
    )  # fmt: skip
    return Kernel("dgemm", Kind.DGEMM, op, 2.0 * rows * columns * depth, _bytes_of(a, b, c, c), in_double=True)


def _column(rows: int = 2048, beside: int = 7) -> Kernel:
    columns = block("columns", np.random.default_rng(rows).standard_normal((beside + 1) * rows), np.float64)
    op = struct(
        ops.Eliminate, column=columns, factors=block("factors", np.full(beside, 0.5), np.float64),
        next_pivot=Memory("largest", np.zeros(1, np.int64)), pivot=2.0, rows=rows, ld=rows, trailing_columns=beside,
    )  # fmt: skip
    return Kernel("eliminate", Kind.ELIMINATE, op, bytes=2 * _bytes_of(columns), in_double=True)
