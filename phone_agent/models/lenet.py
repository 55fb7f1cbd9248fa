"""LeNet as in Caffe (20 and 50 filters, 500 units): 431 080 parameters for 28x28x1 images and 10 classes."""

from __future__ import annotations

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import GLOROT, UNDECIDED, Conv, Dense, Graph, GraphBuilder, MaxPool, Relu, Shape


def build(classes: int, shape: Shape, width: float) -> Graph:
    net = GraphBuilder(shape)
    for number, filters in enumerate((20, 50), start=1):
        net.add(f"conv{number}", Conv(scale_channels(filters, width), kernel=5, gain=GLOROT))
        net.add(f"relu{number}", Relu())
        net.add(f"pool{number}", MaxPool(kernel=2, stride=2))
    net.add("fc1", Dense(scale_channels(500, width)))
    net.add("relu3", Relu())
    net.add("fc2", Dense(classes, gain=UNDECIDED))
    return net.build()
