"""Single layers: our forward, backward-data and backward-weights convolutions against PyTorch.

    python -m benchmarks.layers --torch-python ~/torch/bin/python --only resnet50
    python -m benchmarks.layers --ours-only --threads 1 --isa avx2 --only dw

Layers of real networks at a small batch. Both sides are separate processes and take turns; the best time counts. The
column % is the fraction of the measured multiply-add peak, counting the flops of direct convolution, so Winograd can
exceed 100. PyTorch runs in its fastest configuration: channels_last, with an allocator that keeps freed memory.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers import CLOCKS, RETAIN_FREED_MEMORY, Peer, PeerError, torch_python

DIRECTIONS = ("forward", "backward_data", "backward_weights")


@dataclass(frozen=True)
class Shape:
    network: str
    name: str
    size: int
    channels: int
    filters: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    groups: int = 1
    first: bool = False  # reads the image, so it needs no input gradient

    @property
    def title(self) -> str:
        return f"{self.network} {self.name}"

    @property
    def out(self) -> tuple[int, int]:
        return (
            (self.size + 2 * self.padding[0] - self.kernel[0]) // self.stride + 1,
            (self.size + 2 * self.padding[1] - self.kernel[1]) // self.stride + 1,
        )

    def flops(self, batch: int) -> float:
        rows, columns = self.out
        taps = self.kernel[0] * self.kernel[1] * self.channels // self.groups
        return 2.0 * batch * rows * columns * taps * self.filters

    def geometry(self, batch: int) -> dict[str, int]:
        rows, columns = self.out
        return {
            "batch": batch, "in_h": self.size, "in_w": self.size, "in_c": self.channels,
            "out_h": rows, "out_w": columns, "out_c": self.filters,
            "kernel_h": self.kernel[0], "kernel_w": self.kernel[1], "stride": self.stride,
            "pad_h": self.padding[0], "pad_w": self.padding[1], "dilation": 1, "groups": self.groups,
        }  # fmt: skip


def _conv(  # noqa: PLR0917 - the usual order of convolution parameters
    network: str, size: int, channels: int, filters: int, kernel: int = 1, stride: int = 1, **more: Any
) -> Shape:
    kind = f"{kernel}x{kernel}{f' s{stride}' if stride > 1 else ''} {channels}->{filters} @{size}"
    padding = more.pop("padding", kernel // 2)
    return Shape(network, kind, size, channels, filters, (kernel, kernel), stride, (padding, padding), **more)


def _dw(network: str, size: int, channels: int, stride: int = 1) -> Shape:
    kind = f"dw 3x3{f' s{stride}' if stride > 1 else ''} {channels} @{size}"
    return Shape(network, kind, size, channels, channels, (3, 3), stride, (1, 1), channels)


def _dense(network: str, inputs: int, units: int) -> Shape:
    return Shape(network, f"fc {inputs}->{units}", 1, inputs, units)


SHAPES = [
    _conv("resnet50", 224, 3, 64, 7, 2, padding=3, first=True),
    _conv("resnet50", 56, 64, 64),
    _conv("resnet50", 56, 64, 64, 3),
    _conv("resnet50", 56, 64, 256),
    _conv("resnet50", 56, 256, 64),
    _conv("resnet50", 56, 256, 128),
    _conv("resnet50", 56, 128, 128, 3, 2),
    _conv("resnet50", 56, 256, 512, 1, 2),
    _conv("resnet50", 28, 128, 128, 3),
    _conv("resnet50", 28, 128, 512),
    _conv("resnet50", 28, 512, 128),
    _conv("resnet50", 14, 256, 256, 3),
    _conv("resnet50", 14, 256, 1024),
    _conv("resnet50", 14, 1024, 256),
    _conv("resnet50", 14, 1024, 2048, 1, 2),
    _conv("resnet50", 7, 512, 512, 3),
    _conv("resnet50", 7, 512, 2048),
    _conv("resnet50", 7, 2048, 512),
    _dense("resnet50", 2048, 1000),
    _conv("mobilenet", 224, 3, 32, 3, 2, first=True),
    _dw("mobilenet", 112, 32),
    _conv("mobilenet", 112, 32, 64),
    _dw("mobilenet", 112, 64, 2),
    _conv("mobilenet", 56, 64, 128),
    _dw("mobilenet", 56, 128),
    _conv("mobilenet", 56, 128, 128),
    _dw("mobilenet", 28, 256, 2),
    _conv("mobilenet", 14, 512, 512),
    _dw("mobilenet", 14, 512),
    _conv("mobilenet", 7, 1024, 1024),
    _dw("mobilenet", 7, 1024),
    _conv("mobilenet_v2", 112, 16, 96),
    _dw("mobilenet_v2", 112, 96, 2),
    _conv("mobilenet_v2", 56, 96, 24),
    _conv("mobilenet_v2", 56, 24, 144),
    _conv("mobilenet_v2", 14, 384, 96),
    _conv("googlenet", 56, 64, 192, 3),
    _conv("googlenet", 28, 192, 96),
    _conv("googlenet", 28, 96, 128, 3),
    _conv("googlenet", 28, 16, 32, 3),
    _conv("googlenet", 14, 480, 192),
    _conv("googlenet", 14, 112, 224, 3),
    _conv("googlenet", 7, 832, 384),
    Shape("inception_v3", "1x7 192 @17", 17, 192, 192, (1, 7), 1, (0, 3)),
    Shape("inception_v3", "3x3 s1 p0 32->32 @149", 149, 32, 32, (3, 3), 1, (0, 0)),
    _conv("inception_v3", 147, 32, 64, 3),
    _conv("inception_v3", 35, 48, 64, 5),
    _conv("squeezenet_v1_0", 224, 3, 96, 7, 2, padding=0, first=True),
    _conv("squeezenet_v1_0", 54, 96, 16),
    _conv("squeezenet_v1_0", 54, 16, 64, 3),
    _conv("squeezenet_v1_0", 27, 32, 128),
    _conv("squeezenet_v1_0", 13, 512, 1000),
    _conv("squeezenet_v1_1", 224, 3, 64, 3, 2, padding=0, first=True),
    _conv("alexnet", 227, 3, 96, 11, 4, padding=0, first=True),
    _conv("alexnet", 27, 96, 256, 5, groups=2),
    _conv("alexnet", 13, 256, 384, 3),
    _dense("alexnet", 9216, 4096),
    _dense("alexnet", 4096, 4096),
]  # fmt: skip
QUICK = ("3x3 64->64 @56", "1x1 64->256 @56", "3x3 256->256 @14", "1x1 1024->256 @14", "dw 3x3 512 @14")


@dataclass(frozen=True)
class Row:
    layer: str
    direction: str
    gflop: float
    ours_s: float | None
    torch_s: float | None
    peak: float | None  # GFLOP/s

    @property
    def ratio(self) -> float | None:
        return self.torch_s / self.ours_s if self.ours_s and self.torch_s else None

    def gflops(self, seconds: float | None) -> float | None:
        return self.gflop / seconds if seconds else None


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        ours = stack.enter_context(Peer("ours", "benchmarks.our_peer"))
        ours.ask("open_layers", threads=options.threads, isa=options.isa)
        theirs = None
        if not options.ours_only:
            python = torch_python(options.torch_python)
            theirs = stack.enter_context(Peer("torch", "benchmarks.torch_peer", python, RETAIN_FREED_MEMORY))
            theirs.ask("open_layers", threads=options.threads)
        peak = ours.ask("peak")["gflops"]
        rows = [
            row
            for shape in _chosen(options)
            for direction in DIRECTIONS
            if not (shape.first and direction == "backward_data")
            for row in [measure(ours, theirs, shape, direction, options, peak=peak)]
        ]
    if options.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2))
    else:
        report(rows, peak, options)


def measure(
    ours: Peer, theirs: Peer | None, shape: Shape, direction: str, options: argparse.Namespace, *, peak: float | None
) -> Row:
    def best(peer: Peer | None, **more: Any) -> float | None:
        if peer is None:
            return None
        arguments = {
            "geometry": shape.geometry(options.batch),
            "direction": direction,
            "seconds": options.seconds,
            "clock": options.clock,
        }
        try:
            return float(peer.ask("layer", **arguments, **more)["best"])
        except PeerError as error:
            Console(stderr=True).print(f"{shape.title} {direction}: {error}", markup=False)
            return None

    both: list[tuple[float | None, float | None]] = [
        (best(ours, algorithm=options.algorithm), best(theirs)) for _ in range(options.rounds)
    ]
    mine = [one for one, _ in both if one]
    other = [two for _, two in both if two]
    return Row(
        shape.title,
        direction,
        shape.flops(options.batch) / 1e9,
        min(mine, default=None),
        min(other, default=None),
        peak,
    )


def report(rows: list[Row], peak: float | None, options: argparse.Namespace) -> None:
    title = f"batch {options.batch}, {options.threads} threads" + (f", peak {peak:.0f} GFLOP/s" if peak else "")
    table = Table("layer", "direction", "ours ms", "GFLOP/s", "%", "torch ms", "GFLOP/s", "%", "ratio", title=title)
    for row in rows:
        ratio = "" if row.ratio is None else f"[{'green' if row.ratio >= 1 else 'red'}]{row.ratio:.2f}[/]"
        table.add_row(row.layer, row.direction, *_speed(row, row.ours_s), *_speed(row, row.torch_s), ratio)
    console = Console(width=140)
    console.print(table)
    ratios = [row.ratio for row in rows if row.ratio]
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        console.print(
            f"geometric mean {mean:.2f}x over {len(ratios)} cases; slower than PyTorch: {sum(r < 1 for r in ratios)}"
        )


def _speed(row: Row, seconds: float | None) -> tuple[str, str, str]:
    speed = row.gflops(seconds)
    if seconds is None or speed is None:
        return "-", "-", "-"
    return f"{seconds * 1e3:.3f}", f"{speed:.0f}", f"{speed / row.peak:.0%}" if row.peak else "-"


def _chosen(options: argparse.Namespace) -> list[Shape]:
    if options.quick:
        return [shape for shape in SHAPES if shape.name in QUICK]
    return [shape for shape in SHAPES if all(word in shape.title for word in options.only.split())]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words that the layer title must contain, e.g. 'resnet50 3x3'")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="turns per side")
    parser.add_argument("--seconds", type=float, default=0.1, help="duration of a turn")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="use cpu for one thread on a busy machine")
    parser.add_argument("--isa", help="avx512, avx2 or sse2 (default: the best available)")
    parser.add_argument(
        "--algorithm", default="plan", help="plan (the choice of the planner), direct, winograd2 or winograd4"
    )
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch (default: this one)")
    parser.add_argument("--quick", action="store_true", help="a few layers")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
