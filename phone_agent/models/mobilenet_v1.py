"""MobileNet-v1: 4 231 976 parameters. And a reduced version of five blocks, for phones of 2019 and 32x32 images."""

from __future__ import annotations

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import UNDECIDED, BatchNorm, Conv, Dense, GlobalAvgPool, Graph, GraphBuilder, Relu, Shape

Blocks = tuple[tuple[int, int], ...]  # (filters, stride) of each block

FULL: Blocks = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip
REDUCED: Blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))


def build(classes: int, shape: Shape, width: float) -> Graph:
    return _build(shape, width, classes, stem_stride=2, blocks=FULL)


def reduced(classes: int, shape: Shape, width: float) -> Graph:
    """The paper gives no strides. With 1 in the first layer and those of MobileNet after it, 32x32 ends at 8x8, nearly
    the 7x7 of its average pooling; here the average is over the whole map."""
    return _build(shape, width, classes, stem_stride=1, blocks=REDUCED)


def _build(shape: Shape, width: float, classes: int, *, stem_stride: int, blocks: Blocks) -> Graph:
    net = GraphBuilder(shape)
    channels = scale_channels(32, width)
    _conv_bn_relu(net, "features.0", 0, Conv(channels, 3, stem_stride, padding=1, bias=False, fan_out=True))
    for number, (filters, stride) in enumerate(blocks, start=1):
        name = f"features.{number}"
        depthwise = Conv(channels, 3, stride, padding=1, groups=channels, bias=False, fan_out=True)
        _conv_bn_relu(net, name, 0, depthwise)
        channels = scale_channels(filters, width)
        _conv_bn_relu(net, name, 3, Conv(channels, 1, bias=False, fan_out=True))
    net.add("avgpool", GlobalAvgPool())
    net.add("classifier", Dense(classes, gain=UNDECIDED))
    return net.build()


def _conv_bn_relu(net: GraphBuilder, name: str, first: int, conv: Conv) -> None:
    net.add(f"{name}.{first}", conv)
    net.add(f"{name}.{first + 1}", BatchNorm())
    net.add(f"{name}.{first + 2}", Relu())
