"""Inception-v3 as in torchvision, without the auxiliary head: 23 834 568 parameters, for images of 299x299."""

from __future__ import annotations

from phone_agent.nn import graph as nn

ROW, COLUMN = (1, 7), (7, 1)


def build(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = _Builder(shape, width)
    net.conv("Conv2d_1a_3x3", 32, 3, stride=2, same=False)
    net.conv("Conv2d_2a_3x3", 32, 3, same=False)
    net.conv("Conv2d_2b_3x3", 64, 3)
    net.add("maxpool1", nn.MaxPool(kernel=3, stride=2))
    net.conv("Conv2d_3b_1x1", 80, 1)
    net.conv("Conv2d_4a_3x3", 192, 3, same=False)
    last = net.add("maxpool2", nn.MaxPool(kernel=3, stride=2))
    for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        last = net.module_35(name, last, pooled)
    last = net.to_17("Mixed_6a", last)
    for name, middle in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        last = net.module_17(name, last, middle)
    last = net.to_8("Mixed_7a", last)
    for name in ("Mixed_7b", "Mixed_7c"):
        last = net.module_8(name, last)
    net.add("avgpool", nn.GlobalAvgPool())
    net.add("dropout", nn.Dropout(0.5))
    net.add("fc", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()


class _Builder(nn.GraphBuilder):
    """Modules are named after their feature map size for 299x299 images: 35x35, 17x17, 8x8."""

    def conv(self, name: str, filters: int, kernel: nn.IntPair, *feed: int, stride: int = 1, same: bool = True) -> int:
        """Convolution, batch normalization and ReLU. `same`: padded to keep the feature map size."""
        rows, columns = nn.as_pair(kernel)
        padding = (rows // 2, columns // 2) if same else 0
        layer = nn.Conv(self.channels(filters), kernel, stride, padding, bias=False)
        self.add(f"{name}.conv", layer, *feed)
        self.add(f"{name}.bn", nn.BatchNorm(epsilon=0.001))
        return self.add(f"{name}.relu", nn.Relu())

    def pooled(self, name: str, feed: int, filters: int) -> int:
        pool = self.add(f"{name}.pool", nn.AvgPool(kernel=3, stride=1, padding=1), feed)
        return self.conv(f"{name}.branch_pool", filters, 1, pool)

    def module_35(self, name: str, feed: int, pooled: int) -> int:
        one = self.conv(f"{name}.branch1x1", 64, 1, feed)
        self.conv(f"{name}.branch5x5_1", 48, 1, feed)
        five = self.conv(f"{name}.branch5x5_2", 64, 5)
        self.conv(f"{name}.branch3x3dbl_1", 64, 1, feed)
        self.conv(f"{name}.branch3x3dbl_2", 96, 3)
        double = self.conv(f"{name}.branch3x3dbl_3", 96, 3)
        return self.add(name, nn.Concat(), one, five, double, self.pooled(name, feed, pooled))

    def to_17(self, name: str, feed: int) -> int:
        three = self.conv(f"{name}.branch3x3", 384, 3, feed, stride=2, same=False)
        self.conv(f"{name}.branch3x3dbl_1", 64, 1, feed)
        self.conv(f"{name}.branch3x3dbl_2", 96, 3)
        double = self.conv(f"{name}.branch3x3dbl_3", 96, 3, stride=2, same=False)
        pool = self.add(f"{name}.pool", nn.MaxPool(kernel=3, stride=2), feed)
        return self.add(name, nn.Concat(), three, double, pool)

    def module_17(self, name: str, feed: int, middle: int) -> int:
        one = self.conv(f"{name}.branch1x1", 192, 1, feed)
        self.conv(f"{name}.branch7x7_1", middle, 1, feed)
        self.conv(f"{name}.branch7x7_2", middle, ROW)
        seven = self.conv(f"{name}.branch7x7_3", 192, COLUMN)
        self.conv(f"{name}.branch7x7dbl_1", middle, 1, feed)
        for number, kernel in ((2, COLUMN), (3, ROW), (4, COLUMN)):
            self.conv(f"{name}.branch7x7dbl_{number}", middle, kernel)
        double = self.conv(f"{name}.branch7x7dbl_5", 192, ROW)
        return self.add(name, nn.Concat(), one, seven, double, self.pooled(name, feed, 192))

    def to_8(self, name: str, feed: int) -> int:
        self.conv(f"{name}.branch3x3_1", 192, 1, feed)
        three = self.conv(f"{name}.branch3x3_2", 320, 3, stride=2, same=False)
        self.conv(f"{name}.branch7x7x3_1", 192, 1, feed)
        self.conv(f"{name}.branch7x7x3_2", 192, ROW)
        self.conv(f"{name}.branch7x7x3_3", 192, COLUMN)
        seven = self.conv(f"{name}.branch7x7x3_4", 192, 3, stride=2, same=False)
        pool = self.add(f"{name}.pool", nn.MaxPool(kernel=3, stride=2), feed)
        return self.add(name, nn.Concat(), three, seven, pool)

    def module_8(self, name: str, feed: int) -> int:
        one = self.conv(f"{name}.branch1x1", 320, 1, feed)
        fork = self.conv(f"{name}.branch3x3_1", 384, 1, feed)
        three = self._row_and_column(f"{name}.branch3x3_2", fork)
        self.conv(f"{name}.branch3x3dbl_1", 448, 1, feed)
        fork = self.conv(f"{name}.branch3x3dbl_2", 384, 3)
        double = self._row_and_column(f"{name}.branch3x3dbl_3", fork)
        return self.add(name, nn.Concat(), one, *three, *double, self.pooled(name, feed, 192))

    def _row_and_column(self, name: str, fork: int) -> tuple[int, int]:
        return self.conv(f"{name}a", 384, (1, 3), fork), self.conv(f"{name}b", 384, (3, 1), fork)
