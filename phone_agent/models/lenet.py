"""LeNet as in Caffe (20 and 50 filters, 500 units): 431 080 parameters for 28x28x1 images and 10 classes."""

from __future__ import annotations

from phone_agent.nn import graph as nn


def build(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = nn.GraphBuilder(shape, width)
    for number, filters in enumerate((20, 50), start=1):
        net.add(f"conv{number}", nn.Conv(net.channels(filters), kernel=5, gain=nn.GLOROT))
        net.add(f"relu{number}", nn.Relu())
        net.add(f"pool{number}", nn.MaxPool(kernel=2, stride=2))
    net.add("fc1", nn.Dense(net.channels(500)))
    net.add("relu3", nn.Relu())
    net.add("fc2", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()
