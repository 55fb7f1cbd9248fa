"""Compares every kernel of the core with numpy on this processor, on shapes that are no multiple of a vector."""

from __future__ import annotations

from contextlib import closing
from ctypes import Structure

import numpy as np
from numpy.typing import NDArray

from phone_agent.backends import get_backend
from phone_agent.comm.collective import TrafficStats
from phone_agent.comm.executor import SpanCallback
from phone_agent.comm.powersgd import PowerSgd
from phone_agent.comm.wire import BLOCK, WIRE_FORMATS, WireCodec
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.core.thread_pool import Program, ThreadPool, aligned, workspace_bytes
from phone_agent.nn import graph as nn
from phone_agent.nn.packing import Packing, State
from phone_agent.nn.plan.options import Options
from phone_agent.train.optimizers import METHODS, build_optimizer

Floats = NDArray[np.float32]

THREADS = 2
BATCH = 4
MAX_ATTEMPTS = 3
# Maximum errors relative to the largest value: about ten times the float32 rounding error on known processors.
LAYERS, WINOGRAD, OPTIMIZERS, POWERSGD, AUGMENTATION = 1e-5, 3e-5, 3e-6, 1e-5, 3e-6
FLOAT64 = 1e-14
ROUNDING = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.5 / 127}


def kernel_errors(isa: str) -> dict[str, tuple[float, float]]:
    """The largest error of each group of kernels, and the error allowed."""
    errors = {
        "layers": (_network_error(_all_layers(), isa, LAYERS, winograd=False), LAYERS),
        "winograd": (_network_error(_wide_layers(), isa, WINOGRAD, winograd=True), WINOGRAD),
        "powersgd": (_powersgd_error(), POWERSGD),
        "augmentation": (_augmentation_error(isa), AUGMENTATION),
        "float64": (max(_dgemm_error(isa), _eliminate_error(isa)), FLOAT64),
    }
    for name, bound in ROUNDING.items():
        errors[f"wire {name}"] = (_wire_error(name), bound)
    for method in METHODS:
        errors[f"optimizer {method}"] = (_optimizer_error(method, isa), OPTIMIZERS)
    return errors


def _all_layers() -> nn.Graph:
    """Every sequence of layers that the planner handles differently."""
    net = nn.GraphBuilder((13, 11, 3))
    net.add("conv", nn.Conv(20, 3, padding=1, bias=False))
    net.add("bn", nn.BatchNorm())
    start = net.add("relu", nn.Relu())
    net.add("depthwise", nn.Conv(20, 3, padding=1, groups=20, bias=False))
    net.add("bn2", nn.BatchNorm())
    net.add("relu6", nn.Relu(six=True))
    net.add("pointwise", nn.Conv(20, 1))
    branch = net.add("relu3", nn.Relu())
    net.add("sum", nn.Add(), branch, start)
    join = net.add("relu2", nn.Relu())
    net.add("grouped", nn.Conv(36, 5, padding=2, groups=2))
    net.add("lrn", nn.LocalResponseNorm(alpha=0.1))
    left = net.add("max", nn.MaxPool(3, 2, padding=1))
    right = net.add("average", nn.AvgPool(3, 2, padding=1, count_padding=False), join)
    net.add("concat", nn.Concat(), left, right)
    net.add("bn3", nn.BatchNorm())
    net.add("dilated", nn.Conv(19, 3, padding=2, dilation=2))
    net.add("dropout", nn.Dropout(0.3))
    net.add("mean", nn.GlobalAvgPool())
    net.add("scores", nn.Dense(7))
    return net.build()


def _wide_layers() -> nn.Graph:
    """Wide enough for the planner to choose Winograd."""
    net = nn.GraphBuilder((16, 16, 48))
    net.add("conv", nn.Conv(48, 3, padding=1))
    net.add("relu", nn.Relu())
    net.add("conv2", nn.Conv(48, 3, padding=1))
    net.add("mean", nn.GlobalAvgPool())
    net.add("scores", nn.Dense(5))
    return net.build()


def _network_error(graph: nn.Graph, isa: str, bound: float, *, winograd: bool) -> float:
    """Retries with another seed: a value that is zero except for rounding may pass a ReLU in one backend only."""
    options = Options(threads=THREADS, isa=isa, winograd=winograd)
    errors = []
    for seed in range(MAX_ATTEMPTS):
        errors.append(_one_network_error(graph, options, seed))
        if errors[-1] <= bound:
            break
    return min(errors)


def _one_network_error(graph: nn.Graph, options: Options, seed: int) -> float:
    ours, exact = State(graph, 1), State(graph, 1, np.float64)
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((BATCH, *graph.shape)).astype(np.float32)
    labels = rng.integers(0, graph.classes, BATCH)
    executable = get_backend("cpu").compile(graph, ours, BATCH, options)
    reference = get_backend("reference").compile(graph, exact, BATCH, options)
    ours.gradients[:] = np.nan
    loss = executable.loss_and_gradients(images, labels, 0.5, draw=9)
    expected = reference.loss_and_gradients(images.astype(np.float64), labels, 0.5, draw=9)
    pairs = [
        (np.array([loss]), np.array([expected])),
        (_gradients(ours), _gradients(exact)),
        (ours.statistics, exact.statistics),
        (executable.forward(images), reference.forward(images.astype(np.float64))),
    ]
    return max(_relative(got, expected) for got, expected in pairs if expected.size)


def _gradients(state: State) -> NDArray[np.generic]:
    """Without the padding between buckets, which no kernel writes."""
    return np.concatenate([view.ravel() for view in state.packing.views(state.gradients).values()])


def _relative(got: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """NaN marks values that were never written: an infinite error."""
    difference = np.abs(np.asarray(got, np.float64) - np.asarray(expected, np.float64)).max()
    return float(np.nan_to_num(difference, nan=np.inf) / max(np.abs(np.asarray(expected, np.float64)).max(), 1e-30))


def _wire_error(name: str) -> float:
    """Error of encode, decode and add, relative to the value or block maximum that sets the rounding step."""
    rng = np.random.default_rng(1)
    wire = WIRE_FORMATS[name]
    codec = WireCodec(wire)
    first, second = (rng.standard_normal(5 * BLOCK + 17).astype(np.float32) for _ in range(2))
    message, decoded, own = np.empty(wire.size(first.size), np.uint8), np.empty_like(first), second.copy()
    codec.encode(first.copy(), message)
    codec.decode(message, decoded)
    codec.encode(own, message, message, write_back=True)
    scale = np.abs if name in {"fp16", "bf16"} else _block_max
    return max(_max_ratio(decoded - first, scale(first)), _max_ratio(own - (decoded + second), scale(decoded + second)))


def _block_max(values: Floats) -> Floats:
    block_maxima = [np.abs(values[start : start + BLOCK]).max() for start in range(0, values.size, BLOCK)]
    return np.repeat(np.array(block_maxima, np.float32), BLOCK)[: values.size]


def _max_ratio(difference: Floats, scale: Floats) -> float:
    tiny = _block_max(scale) * 1e-6  # below this, the format has no bits left
    return float((np.maximum(np.abs(difference) - tiny, 0) / (scale + 1e-30)).max())


def _optimizer_error(method: str, isa: str) -> float:
    graph = _wide_layers()
    spec = OptimizerSpec(name=method, weight_decay=1e-3)
    ours, exact = State(graph, 1), State(graph, 1, np.float64)
    pairs = [
        (ours, build_optimizer(spec, ours, threads=THREADS, isa=isa)),
        (exact, build_optimizer(spec, exact, backend="reference")),
    ]
    for step in range(1, 4):
        gradients = np.random.default_rng(step).standard_normal(ours.values.size)
        for state, optimizer in pairs:
            state.gradients[:] = gradients
            optimizer.update(slice(None), 0.1, step)
    return _relative(ours.values, exact.values)


class _SingleRank:
    """The communicator of a single rank: every sum is already complete."""

    on_span: SpanCallback | None = None

    def __init__(self) -> None:
        self.traffic = TrafficStats()

    def allreduce(self, buffer: Floats) -> None:
        self.traffic.add(buffer.nbytes, 0.0)


def _powersgd_error() -> float:
    """PowerSGD of rank four must reproduce a matrix of rank four, one large enough to be compressed."""
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((131, 4)) @ rng.standard_normal((4, 77))
    gradients = aligned(matrix.size)
    gradients[:] = matrix.ravel()
    packing = Packing([("w", nn.Parameter("w", matrix.shape, 1, 1.0))])
    PowerSgd(_SingleRank(), packing).reduce(gradients, slice(None), step=1)
    return _relative(gradients, matrix.ravel())


def _dgemm_error(isa: str) -> float:
    """C - A^T B in double precision."""
    rng = np.random.default_rng(4)
    a, b, c = (rng.standard_normal(shape) for shape in ((19, 23), (19, 37), (23, 37)))
    expected = c - a.T @ b
    op = ops.Dgemm(
        a=a.ctypes.data, b=b.ctypes.data, c=c.ctypes.data, alpha=-1.0, rows=23, columns=37, depth=19,
        lda=23, ldb=37, ldc=37, accumulate=1,
    )  # fmt: skip
    _run(Kind.DGEMM, op, isa)
    return _relative(c, expected)


def _eliminate_error(isa: str) -> float:
    """Divides a column by its pivot, eliminates it from two others, and finds the next pivot."""
    columns, factors = np.random.default_rng(5).standard_normal((3, 1100)), np.array([0.7, -1.3])
    expected = columns.copy()
    expected[0] /= 1.7
    expected[1:] -= factors[:, None] * expected[0]
    next_pivot = np.zeros(1, np.int64)
    op = ops.Eliminate(
        column=columns.ctypes.data, factors=factors.ctypes.data, next_pivot=next_pivot.ctypes.data,
        pivot=1.7, rows=1100, ld=1100, trailing_columns=2,
    )  # fmt: skip
    _run(Kind.ELIMINATE, op, isa)
    pivot_found = int(next_pivot[0]) == int(np.abs(expected[1]).argmax())
    return _relative(columns, expected) if pivot_found else float("inf")


def _run(kind: Kind, op: Structure, isa: str) -> None:
    with closing(ThreadPool(THREADS, isa, workspace_bytes(THREADS, [(kind, op)], isa))) as pool:
        pool.run(Program.of([(kind, op)]))


def _augmentation_error(isa: str) -> float:
    """Crop, flip and normalize."""
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (3, 9, 10, 3)).astype(np.uint8)
    crops = np.array([[1, 2, 7, 7, flip, 0] for flip in (0, 1, 0)], np.int32)
    mean, inv_std = np.array([0.4, 0.5, 0.6], np.float32), np.array([4.0, 3.0, 5.0], np.float32)
    out = np.full((3, 7, 7, 3), np.nan, np.float32)
    op = ops.Augment(
        images=images.ctypes.data, crops=crops.ctypes.data, mean=mean.ctypes.data, inv_std=inv_std.ctypes.data,
        out=out.ctypes.data, batch=3, in_h=9, in_w=10, out_h=7, out_w=7, channels=3,
    )  # fmt: skip
    _run(Kind.AUGMENT, op, isa)
    cropped = images[:, 1:8, 2:9] / 255.0
    cropped[1] = cropped[1, :, ::-1]
    return _relative(out, (cropped - mean) * inv_std)
