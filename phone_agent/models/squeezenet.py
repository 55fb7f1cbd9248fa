"""SqueezeNet as in torchvision: 1 248 424 parameters (v1.0) and 1 235 496 (v1.1)."""

from __future__ import annotations

from phone_agent.models.width import scale_channels
from phone_agent.nn.graph import (
    TORCH_DEFAULT,
    Concat,
    Conv,
    Dropout,
    GlobalAvgPool,
    Graph,
    GraphBuilder,
    MaxPool,
    Relu,
    Shape,
)

POOL = MaxPool(kernel=3, stride=2, ceil=True)
FIRES = (
    (16, 64),
    (16, 64),
    (32, 128),
    (32, 128),
    (48, 192),
    (48, 192),
    (64, 256),
    (64, 256),
)  # squeeze channels, channels of each expand branch


def v1_0(classes: int, shape: Shape, width: float) -> Graph:
    return _build(classes, shape, width, stem=Conv(scale_channels(96, width), kernel=7, stride=2), pools=(2, 6, 11))


def v1_1(classes: int, shape: Shape, width: float) -> Graph:
    return _build(classes, shape, width, stem=Conv(scale_channels(64, width), kernel=3, stride=2), pools=(2, 5, 8))


def _build(classes: int, shape: Shape, width: float, *, stem: Conv, pools: tuple[int, ...]) -> Graph:
    net = GraphBuilder(shape)
    net.add("features.0", stem)
    net.add("features.1", Relu())
    fires = iter(FIRES)
    for number in range(2, 13):
        if number in pools:
            net.add(f"features.{number}", POOL)
        else:
            squeezed, expand = next(fires)
            _fire(net, f"features.{number}", scale_channels(squeezed, width), scale_channels(expand, width))
    net.add("classifier.0", Dropout(0.5))
    net.add("classifier.1", Conv(classes, kernel=1, gain=TORCH_DEFAULT))  # the ReLU and the average pooling dampen it
    net.add("classifier.2", Relu())
    net.add("classifier.3", GlobalAvgPool())
    return net.build()


def _fire(net: GraphBuilder, name: str, squeezed: int, expand: int) -> None:
    """Fire module: squeeze to few channels, then 1x1 and 3x3 expand branches, concatenated."""
    net.add(f"{name}.squeeze", Conv(squeezed, kernel=1))
    fork = net.add(f"{name}.squeeze_activation", Relu())
    net.add(f"{name}.expand1x1", Conv(expand, kernel=1), fork)
    one = net.add(f"{name}.expand1x1_activation", Relu())
    net.add(f"{name}.expand3x3", Conv(expand, kernel=3, padding=1), fork)
    three = net.add(f"{name}.expand3x3_activation", Relu())
    net.add(name, Concat(), one, three)
