"""Networks of a single layer type, to measure the cost of width and depth: no activations, no pooling.

The outputs of the last layer are the class scores: `width` classes, of which CIFAR-10 uses the first ten. This matches
the published parameter counts; see orchestrator/device_study/published.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from phone_agent.contract.device_study import network_name
from phone_agent.models import CIFAR
from phone_agent.nn.graph import GLOROT, Conv, Dense, GlobalAvgPool, Graph, GraphBuilder, Node
from phone_agent.nn.summary import node_flops


def dense_only(width: int, depth: int) -> Graph:
    net = GraphBuilder(CIFAR)
    for number in range(1, depth + 1):
        net.add(f"fc{number}", Dense(width, gain=GLOROT))
    return net.build()


def convolution_only(width: int, depth: int) -> Graph:
    """3x3, the map stays 32x32. Its mean makes scores of it, without parameters."""
    net = GraphBuilder(CIFAR)
    for number in range(1, depth + 1):
        net.add(f"conv{number}", Conv(width, 3, padding=1, gain=GLOROT))
    net.add("mean", GlobalAvgPool())
    return net.build()


def separable_only(width: int, depth: int) -> Graph:
    """Each convolution is split: 3x3 depthwise, then 1x1 pointwise."""
    net = GraphBuilder(CIFAR)
    channels = CIFAR[2]
    for number in range(1, depth + 1):
        net.add(f"depthwise{number}", Conv(channels, 3, padding=1, groups=channels, gain=GLOROT))
        net.add(f"pointwise{number}", Conv(width, 1, gain=GLOROT))
        channels = width
    net.add("mean", GlobalAvgPool())
    return net.build()


BUILDERS: dict[str, Callable[[int, int], Graph]] = {
    "fc": dense_only,
    "conv": convolution_only,
    "separable": separable_only,
}


def build(family: str, width: int, depth: int) -> Graph:
    return replace(BUILDERS[family](width, depth), name=network_name(family, width, depth))


def three_pass_flops(graph: Graph, batch: int) -> int:
    """FLOPs of a step as the paper estimates them: forward and two backward passes of every layer, with biases.

    A real step does less: the gradient of the images is not needed. `nn.summary.training_flops` counts that.
    """
    return batch * sum(3 * node_flops(node) + 2 * _bias_additions(node) for node in graph.nodes)


def _bias_additions(node: Node) -> int:
    """One per output, and as many in backward, for the bias gradient."""
    return prod(node.shape) if any(parameter.name == "bias" for parameter in node.parameters) else 0
