"""MobileNet-v2 as in torchvision: 3 504 872 parameters."""

from __future__ import annotations

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import (
    UNDECIDED,
    Add,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    Graph,
    GraphBuilder,
    Relu,
    Shape,
)

# expansion, filters, blocks, stride of the first block
GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def build(classes: int, shape: Shape, width: float) -> Graph:
    net = _Builder(shape)
    channels = scale_channels(32, width)
    net.conv_bn_relu6("features.0", Conv(channels, 3, stride=2, padding=1, bias=False, fan_out=True))
    number = 0
    for expansion, filters, blocks, stride in GROUPS:
        for block in range(blocks):
            number += 1
            made = scale_channels(filters, width)
            net.block(f"features.{number}", channels, made, expansion, stride if block == 0 else 1)
            channels = made
    last = Conv(scale_channels(1280, max(1.0, width)), 1, bias=False, fan_out=True)
    net.conv_bn_relu6(f"features.{number + 1}", last)
    net.add("avgpool", GlobalAvgPool())
    net.add("classifier.0", Dropout(0.2))
    net.add("classifier.1", Dense(classes, gain=UNDECIDED))
    return net.build()


class _Builder(GraphBuilder):
    def conv_bn_relu6(self, name: str, conv: Conv) -> int:
        self.add(f"{name}.0", conv)
        self.add(f"{name}.1", BatchNorm())
        return self.add(f"{name}.2", Relu(six=True))

    def block(self, name: str, channels: int, filters: int, expansion: int, stride: int) -> None:
        """Inverted residual: expand, depthwise convolution, linear projection; skip connection if shapes allow."""
        block_input = len(self) - 1
        inside, part = channels * expansion, 0
        if expansion > 1:
            self.conv_bn_relu6(f"{name}.conv.0", Conv(inside, 1, bias=False, fan_out=True))
            part = 1
        depthwise = Conv(inside, 3, stride, padding=1, groups=inside, bias=False, fan_out=True)
        self.conv_bn_relu6(f"{name}.conv.{part}", depthwise)
        self.add(f"{name}.conv.{part + 1}", Conv(filters, 1, bias=False, fan_out=True))
        out = self.add(f"{name}.conv.{part + 2}", BatchNorm())
        if stride == 1 and channels == filters:
            self.add(name, Add(), out, block_input)
