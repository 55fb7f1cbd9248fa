"""Our OpenCL kernels against CLBlast, on the OpenCL device of this machine (PoCL where there is no other).

    python -m benchmarks.opencl
    python -m benchmarks.opencl --part products --rounds 9
    python -m benchmarks.opencl --part steps --networks mobilenet_v1=4 --json

`products`: forward convolutions of our networks as plain matrix products, with one row per pixel of the batch. Our time
includes packing the weights. `steps`: a whole training step (forward and backward) against the same step with im2col
and CLBlast instead of our convolutions (clblast.py). `layers`: our OpenCL convolutions in all directions next to those
of the CPU core, for information.

Both sides run in this process and take turns; the best time of each counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import networks
from benchmarks.clblast import ClblastExecutable, Matrix, sgemm, tune_for_cpu
from benchmarks.layers import SHAPES, Shape
from benchmarks.peers import CLOCKS
from phone_agent.backends.cpu import CpuExecutable
from phone_agent.backends.opencl import tiles
from phone_agent.backends.opencl.backend import OpenClExecutable
from phone_agent.backends.opencl.device import find_device, load_pyopencl
from phone_agent.backends.opencl.emit import LaunchBuilder
from phone_agent.backends.opencl.launches import build_launches
from phone_agent.backends.opencl.program import ProgramCache
from phone_agent.core.ops import Kind
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import fit_plan
from phone_agent.nn.plan.ops import FLOAT, Buffer, Direction, Field, OpSpec, Pointer
from phone_agent.nn.plan.options import Options
from tests.phone_agent.agreement import leave_corners

notes = Console(stderr=True, highlight=False)
MAX_DISTANCE = 1e-5  # between the gradients, relative to their norm: both sides round
PARTS = ("products", "steps", "layers")


@dataclass(frozen=True)
class Duel:
    """Best time of both sides in seconds, and the flops of one run."""

    name: str
    ours: float
    theirs: float
    flops: float

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


@dataclass(frozen=True)
class Turns:
    """Number of turns per side, and the clock."""

    rounds: int
    clock: str


def best_of_turns(turns: Turns, one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Best time of both sides, which take turns. The first turn of each is warm-up."""
    best = [float("inf")] * 2
    now = CLOCKS[turns.clock]
    for turn in range(turns.rounds + 1):
        for number, run in enumerate((one, other)):
            start = now()
            run()
            if turn:
                best[number] = min(best[number], now() - start)
    return best[0], best[1]


class Bench:
    """Runs single operations on the device without a plan: each tensor has a separate buffer."""

    def __init__(self) -> None:
        self.device = find_device()
        self.queue = load_pyopencl().CommandQueue(self.device.context)
        self._programs = ProgramCache(self.device)
        self._buffers: dict[Buffer, Any] = {}
        self.scratch: Any = None

    def resolve(self, pointer: Pointer) -> tuple[Any, int]:
        return self._buffers[pointer.buffer], pointer.offset

    def tensor(self, name: str, count: int) -> Pointer:
        cl = load_pyopencl()
        numbers = np.random.default_rng(count).standard_normal(count, np.float32)
        pointer = Pointer(Buffer(name, count * FLOAT))
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._buffers[pointer.buffer] = cl.Buffer(self.device.context, flags, hostbuf=numbers)
        return pointer

    def prepared(self, kind: Kind, fields: dict[str, Field]) -> Callable[[], None]:
        """A function that runs the operation and waits for it."""
        cl = load_pyopencl()
        make = LaunchBuilder(self._programs, tiles.default_tiles(self.device.limits))
        made = build_launches(OpSpec(kind, kind.name.lower(), Direction.FORWARD, fields), make)
        self.scratch = cl.Buffer(self.device.context, cl.mem_flags.READ_WRITE, max(FLOAT, make.scratch_bytes))
        for each in made:
            each.bind(self)

        def run() -> None:
            for each in made:
                cl.enqueue_nd_range_kernel(self.queue, each.kernel, each.size, each.group)
            self.queue.finish()

        return run


def product(shape: Shape, batch: int, turns: Turns) -> Duel:
    """The forward convolution of a layer as a matrix product."""
    bench = Bench()
    rows, depth = batch * shape.out[0] * shape.out[1], shape.kernel[0] * shape.kernel[1] * shape.channels
    x, weights = bench.tensor("x", rows * depth), bench.tensor("weights", depth * shape.filters)
    y, check = bench.tensor("y", rows * shape.filters), bench.tensor("check", rows * shape.filters)
    plain = Shape(shape.network, shape.name, 1, depth, shape.filters)
    seen: dict[str, Field] = {"data": x, "ld": depth}
    fields: dict[str, Field] = {
        "g": plain.geometry(rows), "x": seen, "weights": weights, "y": y, "ld_y": shape.filters,
    }  # fmt: skip
    ours = bench.prepared(Kind.CONV_FORWARD, fields)
    a, b = Matrix(bench.resolve(x)[0], 0, depth), Matrix(bench.resolve(weights)[0], 0, shape.filters)
    c = Matrix(bench.resolve(check)[0], 0, shape.filters)

    def theirs() -> None:
        sgemm(bench.queue, (rows, shape.filters, depth), a, b, c)
        bench.queue.finish()

    best = best_of_turns(turns, ours, theirs)
    _agree(bench, y, check, rows * shape.filters)
    return Duel(f"{shape.title} ({rows} x {shape.filters} x {depth})", *best, flops=2.0 * rows * shape.filters * depth)


def _agree(bench: Bench, one: Pointer, other: Pointer, count: int) -> None:
    """Exit unless both sides computed the same result."""
    ours, theirs = np.empty((2, count), np.float32)
    for pointer, into in ((one, ours), (other, theirs)):
        load_pyopencl().enqueue_copy(bench.queue, into, bench.resolve(pointer)[0])
    if np.abs(ours - theirs).max() > 1e-3 * np.abs(theirs).max():
        raise SystemExit("our product and that of CLBlast differ")


def step(name: str, batch: int, turns: Turns) -> Duel:
    """A training step: loss and gradients."""
    graph = networks.network(name)
    sample = networks.sample(graph, batch)
    states = [leave_corners(graph, State(graph, seed=0), down=False) for _ in range(2)]
    sides = [
        executable(graph, state, batch, Options())
        for executable, state in zip((OpenClExecutable, ClblastExecutable), states, strict=True)
    ]
    one, other = (partial(made.loss_and_gradients, sample.images, sample.labels, 1.0) for made in sides)
    best = best_of_turns(turns, one, other)
    ours, theirs = (state.gradients for state in states)
    distance = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    if not distance < MAX_DISTANCE:
        raise SystemExit(f"{name}: the gradients differ by {distance:.1e} of their norm")
    return Duel(f"{name}, batch {batch}", *best, flops=6.0 * batch * multiply_adds(graph))


def multiply_adds(graph: Graph) -> int:
    """Multiply-adds of the forward pass of one image."""
    plan = fit_plan(graph, 1, Options())
    return sum(each.flops for each in plan.training.ops if each.direction == Direction.FORWARD) // 2


def layers(name: str, batch: int, rounds: int) -> list[Duel]:
    """Convolutions of a network: OpenCL, and the CPU core with one thread per compute unit of the device."""
    graph = networks.network(name)
    sample = networks.sample(graph, batch)
    options = Options(threads=find_device().limits.compute_units)
    sides = [
        made(graph, State(graph, seed=0), batch, options).profile(sample.images, sample.labels, rounds)
        for made in (OpenClExecutable, CpuExecutable)
    ]
    pairs = zip(*sides, strict=True)
    return [
        Duel(f"{name} {one.name} {one.kind}", one.seconds, other.seconds, float(one.flops))
        for one, other in pairs
        if one.flops
    ]


def log_result(duel: Duel) -> Duel:
    notes.print(f"{duel.name}: {duel.ours * 1e3:.2f} / {duel.theirs * 1e3:.2f} ms, {duel.ratio:.2f}", markup=False)
    return duel


def mean_ratio(duels: list[Duel]) -> float:
    return exp(sum(log(each.ratio) for each in duels) / len(duels))


def report(title: str, rival: str, duels: list[Duel]) -> None:
    table = Table("", "ours ms", "GFLOP/s", f"{rival} ms", "GFLOP/s", "ratio", title=title)
    for each in duels:
        ours, theirs = (f"{each.flops / seconds * 1e-9:.0f}" for seconds in (each.ours, each.theirs))
        table.add_row(
            each.name, f"{each.ours * 1e3:.2f}", ours, f"{each.theirs * 1e3:.2f}", theirs, f"{each.ratio:.2f}"
        )
    console = Console(width=120)
    console.print(table)
    console.print(f"geometric mean {mean_ratio(duels):.2f} over {len(duels)}")


def main() -> None:
    options = _options()
    if find_device().limits.kind == "cpu" and not options.clblast_as_it_is:
        tune_for_cpu()
    results: dict[str, list[Duel]] = {}
    pairs = [(name, int(batch)) for name, _, batch in (each.partition("=") for each in options.networks.split(","))]
    if "products" in options.part:
        shapes = [shape for shape in SHAPES if shape.groups == 1 and all(word in shape.title for word in options.only)]
        results["products"] = [
            log_result(product(shape, options.batch, Turns(options.rounds, options.clock))) for shape in shapes
        ]
    if "steps" in options.part:
        results["steps"] = [
            log_result(step(name, batch, Turns(options.step_rounds, options.clock))) for name, batch in pairs
        ]
    if "layers" in options.part:
        results["layers"] = [each for name, batch in pairs for each in layers(name, batch, options.step_rounds)]
    if options.json:
        document = {
            "device": asdict(find_device().identity),
            "tiles": asdict(tiles.default_tiles(find_device().limits)),
        }
        rows = {
            part: {"mean_ratio": mean_ratio(duels), "rows": [{**asdict(each), "ratio": each.ratio} for each in duels]}
            for part, duels in results.items()
        }
        print(json.dumps({**document, **rows}, indent=2))
        return
    for part, duels in results.items():
        report(f"{part} on {find_device().identity.device}", "core" if part == "layers" else "CLBlast", duels)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all; may be repeated")
    parser.add_argument(
        "--only", default="", help="words that the title of a product must contain, e.g. 'resnet50 3x3'"
    )
    parser.add_argument("--batch", type=int, default=4, help="batch size for products")
    parser.add_argument("--rounds", type=int, default=7, help="turns per side for products")
    parser.add_argument("--networks", default="mobilenet_v1=4,resnet50=2", help="NAME=BATCH for steps and layers")
    parser.add_argument("--step-rounds", type=int, default=3, help="turns per side for steps")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: CPU time of all threads, for a busy machine"
    )
    parser.add_argument(
        "--clblast-as-it-is",
        action="store_true",
        help="use the default CLBlast parameters instead of those tuned for CPUs",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.part, options.only = options.part or PARTS, options.only.split()
    return options


if __name__ == "__main__":
    main()
