"""Every kernel of the core beside numpy, on this processor: a few shapes of no vector's size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phone_agent.backends import get_backend
from phone_agent.comm.collective import TrafficStats
from phone_agent.comm.executor import SpanCallback
from phone_agent.comm.powersgd import PowerSgd
from phone_agent.comm.wire import BLOCK, WIRES, WireCodec
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.core import ops
from phone_agent.core.ops import Kind
from phone_agent.core.thread_pool import Program, ThreadPool, aligned, workspace_bytes
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
    GraphBuilder,
    LocalResponseNorm,
    MaxPool,
    Parameter,
    Relu,
)
from phone_agent.nn.packing import Packing, State
from phone_agent.nn.plan.options import Options
from phone_agent.train.optimizers import METHODS, build_optimizer

Floats = NDArray[np.float32]

THREADS = 2
BATCH = 4
DRAWS = 3
# Largest errors, of the largest number: some ten times what float32 costs on the processors we have.
LAYERS, WINOGRAD, UPDATES, FACTORS, PICTURES = 1e-5, 3e-5, 3e-6, 1e-5, 3e-6
DOUBLES = 1e-14
ROUNDING = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.5 / 127}


def errors(isa: str) -> dict[str, tuple[float, float]]:
    """Largest error of each group of kernels, and the largest there may be."""
    found = {
        "layers": (_network_error(_every_layer(), isa, LAYERS, winograd=False), LAYERS),
        "winograd": (_network_error(_wide_layers(), isa, WINOGRAD, winograd=True), WINOGRAD),
        "factors": (_factor_error(), FACTORS),
        "pictures": (_picture_error(isa), PICTURES),
        "doubles": (max(_double_error(isa), _column_error(isa)), DOUBLES),
    }
    for name, bound in ROUNDING.items():
        found[f"wire {name}"] = (_wire_error(name), bound)
    for method in METHODS:
        found[f"update {method}"] = (_update_error(method, isa), UPDATES)
    return found


def _every_layer() -> Graph:
    """Every way a layer can follow another that the planner treats apart."""
    net = GraphBuilder((13, 11, 3))
    net.add("conv", Conv(20, 3, padding=1, bias=False))
    net.add("bn", BatchNorm())
    start = net.add("relu", Relu())
    net.add("depthwise", Conv(20, 3, padding=1, groups=20, bias=False))
    net.add("bn2", BatchNorm())
    net.add("relu6", Relu(six=True))
    net.add("pointwise", Conv(20, 1))
    branch = net.add("relu3", Relu())
    net.add("sum", Add(), branch, start)
    join = net.add("relu2", Relu())
    net.add("grouped", Conv(36, 5, padding=2, groups=2))
    net.add("lrn", LocalResponseNorm(alpha=0.1))
    left = net.add("max", MaxPool(3, 2, padding=1))
    right = net.add("average", AvgPool(3, 2, padding=1, count_padding=False), join)
    net.add("beside", Concat(), left, right)
    net.add("bn3", BatchNorm())
    net.add("dilated", Conv(19, 3, padding=2, dilation=2))
    net.add("dropout", Dropout(0.3))
    net.add("mean", GlobalAvgPool())
    net.add("scores", Dense(7))
    return net.build()


def _wide_layers() -> Graph:
    """Wide enough that Winograd's way pays."""
    net = GraphBuilder((16, 16, 48))
    net.add("conv", Conv(48, 3, padding=1))
    net.add("relu", Relu())
    net.add("conv2", Conv(48, 3, padding=1))
    net.add("mean", GlobalAvgPool())
    net.add("scores", Dense(5))
    return net.build()


def _network_error(graph: Graph, isa: str, bound: float, *, winograd: bool) -> float:
    """Another draw where one is not good: a value that is zero but for rounding may pass a ReLU here and not there."""
    options = Options(threads=THREADS, isa=isa, winograd=winograd)
    errors = []
    for draw in range(DRAWS):
        errors.append(_one_network_error(graph, options, draw))
        if errors[-1] <= bound:
            break
    return min(errors)


def _one_network_error(graph: Graph, options: Options, seed: int) -> float:
    ours, exact = State(graph, 1), State(graph, 1, np.float64)
    numbers = np.random.default_rng(seed)
    images = numbers.standard_normal((BATCH, *graph.shape)).astype(np.float32)
    labels = numbers.integers(0, graph.classes, BATCH)
    executable = get_backend("cpu").compile(graph, ours, BATCH, options)
    reference = get_backend("reference").compile(graph, exact, BATCH, options)
    ours.gradients[:] = np.nan
    loss = executable.loss_and_gradients(images, labels, 0.5, draw=9)
    wanted = reference.loss_and_gradients(images.astype(np.float64), labels, 0.5, draw=9)
    pairs = [
        (np.array([loss]), np.array([wanted])),
        (ours.gradients, exact.gradients),
        (ours.statistics, exact.statistics),
        (executable.forward(images), reference.forward(images.astype(np.float64))),
    ]
    return max(_relative(got, right) for got, right in pairs if right.size)


def _relative(got: NDArray[np.generic], right: NDArray[np.generic]) -> float:
    """NaN, which is what was not written, counts as infinitely wrong."""
    difference = np.abs(np.asarray(got, np.float64) - np.asarray(right, np.float64)).max()
    return float(np.nan_to_num(difference, nan=np.inf) / max(np.abs(np.asarray(right, np.float64)).max(), 1e-30))


def _wire_error(name: str) -> float:
    """Of numbers sent, arrived, added and sent on, over the largest each may be rounded against."""
    numbers = np.random.default_rng(1)
    wire = WIRES[name]
    coder = WireCodec(wire)
    first, second = (numbers.standard_normal(5 * BLOCK + 17).astype(np.float32) for _ in range(2))
    letter, there, own = np.empty(wire.size(first.size), np.uint8), np.empty_like(first), second.copy()
    coder.encode(first.copy(), letter)
    coder.decode(letter, there)
    coder.encode(own, letter, letter, write_back=True)
    scale = np.abs if name in {"fp16", "bf16"} else _block_largest
    wrong = (_over(there - first, scale(first)), _over(own - (there + second), scale(there + second)))
    return max(wrong)


def _block_largest(values: Floats) -> Floats:
    largest = [np.abs(values[start : start + BLOCK]).max() for start in range(0, values.size, BLOCK)]
    return np.repeat(np.array(largest, np.float32), BLOCK)[: values.size]


def _over(difference: Floats, scale: Floats) -> float:
    tiny = _block_largest(scale) * 1e-6  # below that a format has no bits left to be right with
    return float((np.maximum(np.abs(difference) - tiny, 0) / (scale + 1e-30)).max())


def _update_error(method: str, isa: str) -> float:
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


class _Alone:
    """A cluster of one: all sums are there already."""

    on_span: SpanCallback | None = None

    def __init__(self) -> None:
        self.traffic = TrafficStats()

    def allreduce(self, buffer: Floats) -> None:
        self.traffic.add(buffer.nbytes, 0.0)


def _factor_error() -> float:
    """A matrix of rank four is what four directions say: it must come back. Large enough to go as factors."""
    numbers = np.random.default_rng(2)
    matrix = numbers.standard_normal((131, 4)) @ numbers.standard_normal((4, 77))
    gradients = aligned(matrix.size)
    gradients[:] = matrix.ravel()
    packing = Packing([("w", Parameter("w", matrix.shape, 1, 1.0))])
    PowerSgd(_Alone(), packing).reduce(gradients, slice(None), step=1)
    return _relative(gradients, matrix.ravel())


def _double_error(isa: str) -> float:
    """A product of matrices in double precision, taken off another."""
    numbers = np.random.default_rng(4)
    a, b, c = (numbers.standard_normal(shape) for shape in ((19, 23), (19, 37), (23, 37)))
    want = c - a.T @ b
    op = ops.Dgemm(
        a=a.ctypes.data, b=b.ctypes.data, c=c.ctypes.data, alpha=-1.0, rows=23, columns=37, depth=19,
        lda=23, ldb=37, ldc=37, accumulate=1,
    )  # fmt: skip
    pool = ThreadPool(THREADS, isa, workspace_bytes(THREADS, [(Kind.DGEMM, op)], isa))
    pool.run(Program.of([(Kind.DGEMM, op)]))
    pool.close()
    return _relative(c, want)


def _column_error(isa: str) -> float:
    """A column divided, and taken off two others; then the place of the second one's largest number."""
    columns, factors = np.random.default_rng(5).standard_normal((3, 1100)), np.array([0.7, -1.3])
    want = columns.copy()
    want[0] /= 1.7
    want[1:] -= factors[:, None] * want[0]
    largest = np.zeros(1, np.int64)
    op = ops.Eliminate(
        column=columns.ctypes.data, factors=factors.ctypes.data, next_pivot=largest.ctypes.data,
        pivot=1.7, rows=1100, ld=1100, trailing_columns=2,
    )  # fmt: skip
    pool = ThreadPool(THREADS, isa, workspace_bytes(THREADS, [(Kind.ELIMINATE, op)], isa))
    pool.run(Program.of([(Kind.ELIMINATE, op)]))
    pool.close()
    found = int(largest[0]) == int(np.abs(want[1]).argmax())
    return _relative(columns, want) if found else float("inf")


def _picture_error(isa: str) -> float:
    """Cut out, mirrored, scaled to mean and deviation."""
    numbers = np.random.default_rng(3)
    images = numbers.integers(0, 256, (3, 9, 10, 3)).astype(np.uint8)
    views = np.array([[1, 2, 7, 7, flip, 0] for flip in (0, 1, 0)], np.int32)
    mean, inv_std = np.array([0.4, 0.5, 0.6], np.float32), np.array([4.0, 3.0, 5.0], np.float32)
    out = np.full((3, 7, 7, 3), np.nan, np.float32)
    op = ops.Augment(
        images=images.ctypes.data, crops=views.ctypes.data, mean=mean.ctypes.data, inv_std=inv_std.ctypes.data,
        out=out.ctypes.data, batch=3, in_h=9, in_w=10, out_h=7, out_w=7, channels=3,
    )  # fmt: skip
    pool = ThreadPool(1, isa, workspace_bytes(1, [(Kind.AUGMENT, op)], isa))
    pool.run(Program.of([(Kind.AUGMENT, op)]))
    pool.close()
    cut = images[:, 1:8, 2:9] / 255.0
    cut[1] = cut[1, :, ::-1]
    return _relative(out, (cut - mean) * inv_std)
