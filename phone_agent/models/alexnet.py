"""AlexNet as Caffe distributes it: 60 965 224 parameters.

torchvision has a later, narrower version without groups and local response normalization; common layers have its names.
Padding of 2 in the first layer turns 224x224 into 55x55, as Caffe does with a crop of 227x227.
"""

from __future__ import annotations

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import (
    TORCH_DEFAULT,
    UNDECIDED,
    Conv,
    Dense,
    Dropout,
    Graph,
    GraphBuilder,
    LocalResponseNorm,
    MaxPool,
    Relu,
    Shape,
)


def build(classes: int, shape: Shape, width: float) -> Graph:
    net = GraphBuilder(shape)
    net.add("features.0", Conv(scale_channels(96, width), kernel=11, stride=4, padding=2))
    net.add("features.1", Relu())
    net.add("norm1", LocalResponseNorm())
    net.add("features.2", MaxPool(kernel=3, stride=2, ceil=True))
    net.add("features.3", Conv(scale_channels(256, width), kernel=5, padding=2, groups=2))
    net.add("features.4", Relu())
    net.add("norm2", LocalResponseNorm())
    net.add("features.5", MaxPool(kernel=3, stride=2, ceil=True))
    for number, filters, groups in ((6, 384, 1), (8, 384, 2), (10, 256, 2)):
        net.add(f"features.{number}", Conv(scale_channels(filters, width), kernel=3, padding=1, groups=groups))
        net.add(f"features.{number + 1}", Relu())
    net.add("features.12", MaxPool(kernel=3, stride=2, ceil=True))
    for number, dropout in ((1, "classifier.3"), (4, "classifier.dropout")):
        net.add(f"classifier.{number}", Dense(scale_channels(4096, width), gain=TORCH_DEFAULT))
        net.add(f"classifier.{number + 1}", Relu())
        net.add(dropout, Dropout(0.5))
    net.add("classifier.6", Dense(classes, gain=UNDECIDED))
    return net.build()
