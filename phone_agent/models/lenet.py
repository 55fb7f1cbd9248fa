"""LeNet as Caffe has it (20 and 50 filters, 500 units): 431 080 parameters on 28x28x1 with 10 classes."""

from __future__ import annotations

from collections.abc import Sequence

from phone_agent.nn.graph import GLOROT, Conv, Dense, Graph, GraphBuilder, MaxPool, Relu


def build(classes: int, shape: Sequence[int]) -> Graph:
    net = GraphBuilder(shape)
    net.add("conv1", Conv(filters=20, kernel=5, gain=GLOROT))
    net.add("pool1", MaxPool(kernel=2, stride=2))
    net.add("conv2", Conv(filters=50, kernel=5, gain=GLOROT))
    net.add("pool2", MaxPool(kernel=2, stride=2))
    net.add("fc1", Dense(units=500))
    net.add("relu1", Relu())
    net.add("fc2", Dense(units=classes, gain=GLOROT))
    return net.build()
