"""Residual networks: torchvision's ResNet-50, -101 and -152 (the stride is in the 3x3), and two for 32x32 images."""

from __future__ import annotations

from collections.abc import Callable

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import (
    NEAR_ZERO,
    Add,
    BatchNorm,
    Conv,
    Dense,
    GlobalAvgPool,
    Graph,
    GraphBuilder,
    MaxPool,
    Relu,
    Shape,
)

BOTTLENECK = 4  # a block's output has so many times the channels of its 3x3


def resnet50(classes: int, shape: Shape, width: float) -> Graph:
    return _for_imagenet((3, 4, 6, 3), classes, shape, width)


def resnet101(classes: int, shape: Shape, width: float) -> Graph:
    return _for_imagenet((3, 4, 23, 3), classes, shape, width)


def resnet152(classes: int, shape: Shape, width: float) -> Graph:
    return _for_imagenet((3, 8, 36, 3), classes, shape, width)


def resnet20(classes: int, shape: Shape, width: float) -> Graph:
    """The CIFAR network of the first ResNet paper, with 1x1 convolutions as its two shortcuts that change shape."""
    net = _Builder(shape)
    net.stem(scale_channels(16, width), kernel=3, stride=1)
    for number, filters in enumerate((16, 32, 64), start=1):
        net.group(f"layer{number}", 3, net.basic, scale_channels(filters, width), stride=1 if number == 1 else 2)
    return net.classifier(classes)


def reduced(classes: int, shape: Shape, width: float) -> Graph:
    """3x3 convolutions of 16, 160, 320, 320, 640, 640: a wide residual network (Zagoruyko and Komodakis, ten times as
    wide) cut down. The equally wide pairs are its residual blocks; each halves the map, which ends at 8x8."""
    net = _Builder(shape)
    net.stem(scale_channels(16, width), kernel=3, stride=1)
    net.normalised("conv2", "bn2", Conv(scale_channels(160, width), 3, padding=1, bias=False, fan_out=True))
    net.add("relu2", Relu())
    for number, filters in enumerate((320, 640), start=1):
        net.group(f"layer{number}", 1, net.basic, scale_channels(filters, width), stride=2)
    return net.classifier(classes)


def _for_imagenet(blocks: tuple[int, ...], classes: int, shape: Shape, width: float) -> Graph:
    net = _Builder(shape)
    net.stem(scale_channels(64, width), kernel=7, stride=2)
    net.add("maxpool", MaxPool(kernel=3, stride=2, padding=1))
    for number, count in enumerate(blocks, start=1):
        filters = scale_channels(64 * 2 ** (number - 1), width)
        net.group(f"layer{number}", count, net.bottleneck, filters, stride=1 if number == 1 else 2)
    return net.classifier(classes)


class _Builder(GraphBuilder):
    def stem(self, filters: int, kernel: int, stride: int) -> None:
        self.normalised("conv1", "bn1", Conv(filters, kernel, stride, kernel // 2, bias=False, fan_out=True))
        self.add("relu", Relu())

    def group(
        self, name: str, blocks: int, block: Callable[[str, int, int], None], filters: int, *, stride: int
    ) -> None:
        for number in range(blocks):
            block(f"{name}.{number}", filters, stride if number == 0 else 1)

    def basic(self, name: str, filters: int, stride: int) -> None:
        came = len(self) - 1
        self._part(name, 1, Conv(filters, 3, stride, padding=1, bias=False, fan_out=True))
        self.add(f"{name}.relu1", Relu())
        self._joined(name, came, 2, Conv(filters, 3, padding=1, bias=False, fan_out=True), stride)

    def bottleneck(self, name: str, filters: int, stride: int) -> None:
        came = len(self) - 1
        self._part(name, 1, Conv(filters, 1, bias=False, fan_out=True))
        self.add(f"{name}.relu1", Relu())
        self._part(name, 2, Conv(filters, 3, stride, padding=1, bias=False, fan_out=True))
        self.add(f"{name}.relu2", Relu())
        self._joined(name, came, 3, Conv(BOTTLENECK * filters, 1, bias=False, fan_out=True), stride)

    def classifier(self, classes: int) -> Graph:
        self.add("avgpool", GlobalAvgPool())
        self.add("fc", Dense(classes, gain=NEAR_ZERO))
        return self.build()

    def normalised(self, name: str, norm: str, conv: Conv, *feed: int) -> int:
        self.add(name, conv, *feed)
        return self.add(norm, BatchNorm())

    def _part(self, name: str, number: int, conv: Conv) -> int:
        return self.normalised(f"{name}.conv{number}", f"{name}.bn{number}", conv)

    def _joined(self, name: str, came: int, number: int, conv: Conv, stride: int) -> None:
        """The block's last convolution, what came in (brought to its shape where that differs), their sum."""
        out = self._part(name, number, conv)
        if self.shape_of(came) != self.shape_of(out):
            shortcut = Conv(conv.filters, 1, stride, bias=False, fan_out=True)
            came = self.normalised(f"{name}.downsample.0", f"{name}.downsample.1", shortcut, came)
        self.add(f"{name}.add", Add(), out, came)
        self.add(f"{name}.relu", Relu())
