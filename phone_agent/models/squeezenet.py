"""SqueezeNet as in torchvision: 1 248 424 parameters (v1.0) and 1 235 496 (v1.1)."""

from __future__ import annotations

from phone_agent.nn import graph as nn

POOL = nn.MaxPool(kernel=3, stride=2, ceil=True)
# squeeze channels, channels of each expand branch
FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


def v1_0(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    return _build(classes, shape, width, filters=96, kernel=7, pools=(2, 6, 11))


def v1_1(classes: int, shape: nn.Shape, width: float) -> nn.Graph:
    return _build(classes, shape, width, filters=64, kernel=3, pools=(2, 5, 8))


def _build(
    classes: int, shape: nn.Shape, width: float, *, filters: int, kernel: int, pools: tuple[int, ...]
) -> nn.Graph:
    net = nn.GraphBuilder(shape, width)
    net.add("features.0", nn.Conv(net.channels(filters), kernel, stride=2))
    net.add("features.1", nn.Relu())
    fires = iter(FIRES)
    for number in range(2, 13):
        if number in pools:
            net.add(f"features.{number}", POOL)
        else:
            squeezed, expand = next(fires)
            _fire(net, f"features.{number}", net.channels(squeezed), net.channels(expand))
    net.add("classifier.0", nn.Dropout(0.5))
    # Not UNDECIDED: the ReLU and the average pooling dampen it.
    net.add("classifier.1", nn.Conv(classes, kernel=1, gain=nn.TORCH_DEFAULT))
    net.add("classifier.2", nn.Relu())
    net.add("classifier.3", nn.GlobalAvgPool())
    return net.build()


def _fire(net: nn.GraphBuilder, name: str, squeezed: int, expand: int) -> None:
    """Fire module: squeeze to few channels, then 1x1 and 3x3 expand branches, concatenated."""
    net.add(f"{name}.squeeze", nn.Conv(squeezed, kernel=1))
    fork = net.add(f"{name}.squeeze_activation", nn.Relu())
    net.add(f"{name}.expand1x1", nn.Conv(expand, kernel=1), fork)
    one = net.add(f"{name}.expand1x1_activation", nn.Relu())
    net.add(f"{name}.expand3x3", nn.Conv(expand, kernel=3, padding=1), fork)
    three = net.add(f"{name}.expand3x3_activation", nn.Relu())
    net.add(name, nn.Concat(), one, three)
