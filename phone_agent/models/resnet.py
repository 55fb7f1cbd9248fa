"""Residual networks: ResNet-50, -101 and -152 as in torchvision (stride in the 3x3), and two for 32x32 images."""

from __future__ import annotations

from collections.abc import Callable

from phone_agent.nn import graph as nn

BOTTLENECK = 4  # output channels of a bottleneck block per channel of its 3x3 convolution


def resnet50(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    return _for_imagenet((3, 4, 6, 3), classes, shape, width)


def resnet101(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    return _for_imagenet((3, 4, 23, 3), classes, shape, width)


def resnet152(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    return _for_imagenet((3, 8, 36, 3), classes, shape, width)


def resnet20(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    """The CIFAR network of the first ResNet paper, with 1x1 convolutions as the two shortcuts that change shape."""
    net = _Builder(shape, width)
    net.stem(net.channels(16), kernel=3, stride=1)
    for number, filters in enumerate((16, 32, 64), start=1):
        net.group(f"layer{number}", 3, net.basic, net.channels(filters), stride=1 if number == 1 else 2)
    return net.classifier(classes)


def reduced(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    """A reduced wide ResNet (Zagoruyko and Komodakis, width 10): 3x3 convolutions of 16, 160, 320, 320, 640, 640.

    Pairs of the same width are residual blocks. Each halves the feature map, which ends at 8x8.
    """
    net = _Builder(shape, width)
    net.stem(net.channels(16), kernel=3, stride=1)
    net.conv_bn("conv2", "bn2", nn.Conv(net.channels(160), 3, padding=1, bias=False, fan_out=True))
    net.add("relu2", nn.Relu())
    for number, filters in enumerate((320, 640), start=1):
        net.group(f"layer{number}", 1, net.basic, net.channels(filters), stride=2)
    return net.classifier(classes)


def _for_imagenet(blocks: tuple[int, ...], classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = _Builder(shape, width)
    net.stem(net.channels(64), kernel=7, stride=2)
    net.add("maxpool", nn.MaxPool(kernel=3, stride=2, padding=1))
    for number, count in enumerate(blocks, start=1):
        filters = net.channels(64 * 2 ** (number - 1))
        net.group(f"layer{number}", count, net.bottleneck, filters, stride=1 if number == 1 else 2)
    return net.classifier(classes)


class _Builder(nn.GraphBuilder):
    def stem(self, filters: int, kernel: int, stride: int) -> None:
        self.conv_bn("conv1", "bn1", nn.Conv(filters, kernel, stride, kernel // 2, bias=False, fan_out=True))
        self.add("relu", nn.Relu())

    def group(
        self, name: str, blocks: int, block: Callable[[str, int, int], None], filters: int, *, stride: int
    ) -> None:
        for number in range(blocks):
            block(f"{name}.{number}", filters, stride if number == 0 else 1)

    def basic(self, name: str, filters: int, stride: int) -> None:
        block_input = len(self) - 1
        self._numbered_conv(name, 1, nn.Conv(filters, 3, stride, padding=1, bias=False, fan_out=True))
        self.add(f"{name}.relu1", nn.Relu())
        self._add_shortcut(name, block_input, 2, nn.Conv(filters, 3, padding=1, bias=False, fan_out=True), stride)

    def bottleneck(self, name: str, filters: int, stride: int) -> None:
        block_input = len(self) - 1
        self._numbered_conv(name, 1, nn.Conv(filters, 1, bias=False, fan_out=True))
        self.add(f"{name}.relu1", nn.Relu())
        self._numbered_conv(name, 2, nn.Conv(filters, 3, stride, padding=1, bias=False, fan_out=True))
        self.add(f"{name}.relu2", nn.Relu())
        self._add_shortcut(name, block_input, 3, nn.Conv(BOTTLENECK * filters, 1, bias=False, fan_out=True), stride)

    def classifier(self, classes: int) -> nn.Graph:
        self.add("avgpool", nn.GlobalAvgPool())
        self.add("fc", nn.Dense(classes, gain=nn.UNDECIDED))
        return self.build()

    def conv_bn(self, name: str, norm: str, conv: nn.Conv, *feed: int) -> int:
        self.add(name, conv, *feed)
        return self.add(norm, nn.BatchNorm())

    def _numbered_conv(self, name: str, number: int, conv: nn.Conv) -> int:
        return self.conv_bn(f"{name}.conv{number}", f"{name}.bn{number}", conv)

    def _add_shortcut(self, name: str, block_input: int, number: int, conv: nn.Conv, stride: int) -> None:
        """The last convolution of the block plus the shortcut, which is projected if its shape differs."""
        out = self._numbered_conv(name, number, conv)
        if self.shape_of(block_input) != self.shape_of(out):
            shortcut = nn.Conv(conv.filters, 1, stride, bias=False, fan_out=True)
            block_input = self.conv_bn(f"{name}.downsample.0", f"{name}.downsample.1", shortcut, block_input)
        self.add(f"{name}.add", nn.Add(), out, block_input)
        self.add(f"{name}.relu", nn.Relu())
