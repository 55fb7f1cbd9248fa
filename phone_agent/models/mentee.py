"""The mentee network, a student for knowledge distillation: 26 890 344 parameters (1000 classes), 22 834 314 (10).

The 26.89 million of the paper require that the first dense layer reads 512 features, so the 2x2 average pooling is
applied to a 2x2 map: 32x32 is halved four times before it, here by max pooling. They also require 1000 classes,
although the paper trains on ten.
"""

from __future__ import annotations

from phone_agent.nn import graph as nn

FILTERS = (64, 128, 256, 512, 512)


def build(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    net = nn.GraphBuilder(shape, width)
    for number, filters in enumerate(FILTERS, start=1):
        net.add(f"conv{number}", nn.Conv(net.channels(filters), kernel=3, padding=1))
        net.add(f"relu{number}", nn.Relu())
        if number < len(FILTERS):
            net.add(f"pool{number}", nn.MaxPool(kernel=2, stride=2, ceil=True))
    net.add("avgpool", nn.AvgPool(kernel=2, stride=2))
    for number in (1, 2):
        net.add(f"fc{number}", nn.Dense(net.channels(4096), gain=nn.TORCH_DEFAULT))
        net.add(f"fc{number}_relu", nn.Relu())
    net.add("fc3", nn.Dense(classes, gain=nn.UNDECIDED))
    return net.build()
