"""A residual network for 32x32 images that learns in minutes: three basic blocks, each of which halves the map.

clusterctl launch --model benchmarks/small_resnet.py:build
"""

from __future__ import annotations

from phone_agent.nn.graph import (
    UNDECIDED,
    Add,
    BatchNorm,
    Conv,
    Dense,
    GlobalAvgPool,
    Graph,
    GraphBuilder,
    Relu,
    Shape,
)


def build(classes: int = 10, shape: Shape = (32, 32, 3)) -> Graph:
    net = GraphBuilder(shape)
    _convolution(net, "stem", 16, 3, 1)
    net.add("stem.relu", Relu())
    for number, filters in enumerate((32, 64, 128), start=1):
        _block(net, f"block{number}", filters)
    net.add("pool", GlobalAvgPool())
    net.add("classifier", Dense(classes, gain=UNDECIDED))
    return net.build()


def _block(net: GraphBuilder, name: str, filters: int) -> None:
    came = len(net) - 1
    _convolution(net, f"{name}.first", filters, 3, 2)
    net.add(f"{name}.relu", Relu())
    out = _convolution(net, f"{name}.second", filters, 3, 1)
    shortcut = _convolution(net, f"{name}.shortcut", filters, 1, 2, came)
    net.add(f"{name}.add", Add(), out, shortcut)
    net.add(f"{name}.out", Relu())


def _convolution(net: GraphBuilder, name: str, filters: int, kernel: int, stride: int, *feed: int) -> int:
    net.add(name, Conv(filters, kernel, stride, kernel // 2, bias=False, fan_out=True), *feed)
    return net.add(f"{name}.norm", BatchNorm())
