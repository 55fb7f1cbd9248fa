"""GoogLeNet as Caffe distributes it, without the auxiliary heads: 6 998 552 parameters.

torchvision has batch normalization, and 3x3 instead of 5x5 convolutions. Common layers have its names.
"""

from __future__ import annotations

from phone_agent.nn import graph as nn

# Filters of: the 1x1 branch; the 1x1 and 3x3 branch; the 1x1 and 5x5 branch; the 1x1 after pooling.
Module = tuple[int, tuple[int, int], tuple[int, int], int]

MODULES: dict[str, Module] = {
    "3a": (64, (96, 128), (16, 32), 32),
    "3b": (128, (128, 192), (32, 96), 64),
    "4a": (192, (96, 208), (16, 48), 64),
    "4b": (160, (112, 224), (24, 64), 64),
    "4c": (128, (128, 256), (24, 64), 64),
    "4d": (112, (144, 288), (32, 64), 64),
    "4e": (256, (160, 320), (32, 128), 128),
    "5a": (256, (160, 320), (32, 128), 128),
    "5b": (384, (192, 384), (48, 128), 128),
}
POOL_AFTER = {"3b": "maxpool3", "4e": "maxpool4"}


def build(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = _Builder(shape, width)
    net.conv("conv1", 64, kernel=7, stride=2)
    net.add("maxpool1", nn.MaxPool(kernel=3, stride=2, ceil=True))
    net.add("norm1", nn.LocalResponseNorm())
    net.conv("conv2", 64, kernel=1)
    net.conv("conv3", 192, kernel=3)
    net.add("norm2", nn.LocalResponseNorm())
    last = net.add("maxpool2", nn.MaxPool(kernel=3, stride=2, ceil=True))
    for name, module in MODULES.items():
        last = net.inception(f"inception{name}", last, module)
        if name in POOL_AFTER:
            last = net.add(POOL_AFTER[name], nn.MaxPool(kernel=3, stride=2, ceil=True))
    net.add("avgpool", nn.GlobalAvgPool())
    net.add("dropout", nn.Dropout(0.4))
    net.add("fc", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()


class _Builder(nn.GraphBuilder):
    def conv(self, name: str, filters: int, kernel: int, *feed: int, stride: int = 1) -> int:
        layer = nn.Conv(self.channels(filters), kernel, stride, padding=kernel // 2)
        self.add(f"{name}.conv", layer, *feed)
        return self.add(f"{name}.relu", nn.Relu())

    def inception(self, name: str, feed: int, module: Module) -> int:
        plain, middle, large, pooled = module
        branches = [self.conv(f"{name}.branch1", plain, 1, feed)]
        for number, kernel, (narrow, filters) in ((2, 3, middle), (3, 5, large)):
            self.conv(f"{name}.branch{number}.0", narrow, 1, feed)
            branches.append(self.conv(f"{name}.branch{number}.1", filters, kernel))
        self.add(f"{name}.branch4.0", nn.MaxPool(kernel=3, stride=1, padding=1), feed)
        branches.append(self.conv(f"{name}.branch4.1", pooled, 1))
        return self.add(name, nn.Concat(), *branches)
