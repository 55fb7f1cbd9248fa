"""AlexNet as Caffe distributes it: 60 965 224 parameters.

torchvision has a later, narrower version without groups and local response normalization; common layers have its names.
Padding of 2 in the first layer turns 224x224 into 55x55, as Caffe does with a crop of 227x227.
"""

from __future__ import annotations

from phone_agent.nn import graph as nn


def build(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = nn.GraphBuilder(shape, width)
    net.add("features.0", nn.Conv(net.channels(96), kernel=11, stride=4, padding=2))
    net.add("features.1", nn.Relu())
    net.add("norm1", nn.LocalResponseNorm())
    net.add("features.2", nn.MaxPool(kernel=3, stride=2, ceil=True))
    net.add("features.3", nn.Conv(net.channels(256), kernel=5, padding=2, groups=2))
    net.add("features.4", nn.Relu())
    net.add("norm2", nn.LocalResponseNorm())
    net.add("features.5", nn.MaxPool(kernel=3, stride=2, ceil=True))
    for number, filters, groups in ((6, 384, 1), (8, 384, 2), (10, 256, 2)):
        net.add(f"features.{number}", nn.Conv(net.channels(filters), kernel=3, padding=1, groups=groups))
        net.add(f"features.{number + 1}", nn.Relu())
    net.add("features.12", nn.MaxPool(kernel=3, stride=2, ceil=True))
    for number, dropout in ((1, "classifier.3"), (4, "classifier.dropout")):
        net.add(f"classifier.{number}", nn.Dense(net.channels(4096), gain=nn.TORCH_DEFAULT))
        net.add(f"classifier.{number + 1}", nn.Relu())
        net.add(dropout, nn.Dropout(0.5))
    net.add("classifier.6", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()
