"""MobileNet-v1 (4 231 976 parameters), its reduced version for phones of 2019 and 32x32 images (five blocks), and
MobileNet-v2 as in torchvision (3 504 872 parameters)."""

from __future__ import annotations

from phone_agent.nn import graph as nn

Blocks = tuple[tuple[int, int], ...]  # (filters, stride) of each block

FULL: Blocks = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip
REDUCED: Blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))


def v1(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    return _build_v1(shape, width, classes, stem_stride=2, blocks=FULL)


def v1_reduced(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    """The paper gives no strides. With 1 in the first layer and those of MobileNet after it, 32x32 ends at 8x8, nearly
    the 7x7 of its average pooling; here the average is over the whole map."""
    return _build_v1(shape, width, classes, stem_stride=1, blocks=REDUCED)


def _build_v1(shape: nn.Shape, width: float, classes: int, *, stem_stride: int, blocks: Blocks) -> nn.Graph:
    net = nn.GraphBuilder(shape, width)
    channels = net.channels(32)
    _conv_bn_relu(net, "features.0", 0, nn.Conv(channels, 3, stem_stride, padding=1, bias=False, fan_out=True))
    for number, (filters, stride) in enumerate(blocks, start=1):
        name = f"features.{number}"
        depthwise = nn.Conv(channels, 3, stride, padding=1, groups=channels, bias=False, fan_out=True)
        _conv_bn_relu(net, name, 0, depthwise)
        channels = net.channels(filters)
        _conv_bn_relu(net, name, 3, nn.Conv(channels, 1, bias=False, fan_out=True))
    net.add("avgpool", nn.GlobalAvgPool())
    net.add("classifier", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()


def _conv_bn_relu(net: nn.GraphBuilder, name: str, first: int, conv: nn.Conv) -> None:
    net.add(f"{name}.{first}", conv)
    net.add(f"{name}.{first + 1}", nn.BatchNorm())
    net.add(f"{name}.{first + 2}", nn.Relu())


# expansion, filters, blocks, stride of the first block
GROUPS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def v2(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = _V2Builder(shape, width)
    channels = net.channels(32)
    net.conv_bn_relu6("features.0", nn.Conv(channels, 3, stride=2, padding=1, bias=False, fan_out=True))
    number = 0
    for expansion, filters, blocks, stride in GROUPS:
        for block in range(blocks):
            number += 1
            made = net.channels(filters)
            net.block(f"features.{number}", channels, made, expansion, stride if block == 0 else 1)
            channels = made
    last = nn.Conv(max(1280, net.channels(1280)), 1, bias=False, fan_out=True)
    net.conv_bn_relu6(f"features.{number + 1}", last)
    net.add("avgpool", nn.GlobalAvgPool())
    net.add("classifier.0", nn.Dropout(0.2))
    net.add("classifier.1", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()


class _V2Builder(nn.GraphBuilder):
    def conv_bn_relu6(self, name: str, conv: nn.Conv) -> int:
        self.add(f"{name}.0", conv)
        self.add(f"{name}.1", nn.BatchNorm())
        return self.add(f"{name}.2", nn.Relu(six=True))

    def block(self, name: str, channels: int, filters: int, expansion: int, stride: int) -> None:
        """Inverted residual: expand, depthwise convolution, linear projection; skip connection if shapes allow."""
        block_input = len(self) - 1
        inside, part = channels * expansion, 0
        if expansion > 1:
            self.conv_bn_relu6(f"{name}.conv.0", nn.Conv(inside, 1, bias=False, fan_out=True))
            part = 1
        depthwise = nn.Conv(inside, 3, stride, padding=1, groups=inside, bias=False, fan_out=True)
        self.conv_bn_relu6(f"{name}.conv.{part}", depthwise)
        self.add(f"{name}.conv.{part + 1}", nn.Conv(filters, 1, bias=False, fan_out=True))
        out = self.add(f"{name}.conv.{part + 2}", nn.BatchNorm())
        if stride == 1 and channels == filters:
            self.add(name, nn.Add(), out, block_input)
