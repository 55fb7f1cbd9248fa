"""MobileNet-v1: 4 231 976 parameters. And its first five blocks, reduced for phones of 2019 and 32x32 images."""

from __future__ import annotations

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import NEAR_ZERO, BatchNorm, Conv, Dense, GlobalAvgPool, Graph, GraphBuilder, Relu, Shape

Blocks = tuple[tuple[int, int], ...]  # filters and stride of each

FULL: Blocks = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip
REDUCED: Blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))


def build(classes: int, shape: Shape, width: float) -> Graph:
    return _build(shape, width, classes, stem_stride=2, blocks=FULL)


def reduced(classes: int, shape: Shape, width: float) -> Graph:
    """The paper gives no strides. With 1 in the first layer and MobileNet's own after it, 32x32 ends at 8x8, which its
    7x7 average all but covers; here the average is of the whole map."""
    return _build(shape, width, classes, stem_stride=1, blocks=REDUCED)


def _build(shape: Shape, width: float, classes: int, *, stem_stride: int, blocks: Blocks) -> Graph:
    net = GraphBuilder(shape)
    channels = scale_channels(32, width)
    _normalised(net, "features.0", 0, Conv(channels, 3, stem_stride, padding=1, bias=False, fan_out=True))
    for number, (filters, stride) in enumerate(blocks, start=1):
        name = f"features.{number}"
        depthwise = Conv(channels, 3, stride, padding=1, groups=channels, bias=False, fan_out=True)
        _normalised(net, name, 0, depthwise)
        channels = scale_channels(filters, width)
        _normalised(net, name, 3, Conv(channels, 1, bias=False, fan_out=True))
    net.add("avgpool", GlobalAvgPool())
    net.add("classifier", Dense(classes, gain=NEAR_ZERO))
    return net.build()


def _normalised(net: GraphBuilder, name: str, first: int, conv: Conv) -> None:
    net.add(f"{name}.{first}", conv)
    net.add(f"{name}.{first + 1}", BatchNorm())
    net.add(f"{name}.{first + 2}", Relu())
