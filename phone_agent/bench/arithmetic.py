"""How much there is to compute: multiplications and additions of a training step, by the direct method."""

from __future__ import annotations

from math import prod

from phone_agent.nn.graph import Conv, Dense, Graph, Node, Shape


def training_flops(graph: Graph) -> float:
    """For one image: forward, and backward to the weights and (but for the first layer) to the input."""
    return sum(_forward(graph, node) * (2 if _reads_image(node) else 3) for node in graph.nodes)


def _forward(graph: Graph, node: Node) -> float:
    fed = _fed(graph, node)
    if isinstance(node.layer, Conv):
        return 2.0 * prod(node.shape) * prod(node.parameters[0].shape[:3])
    if isinstance(node.layer, Dense):
        return 2.0 * prod(fed) * node.layer.units
    return 0.0


def _fed(graph: Graph, node: Node) -> Shape:
    return graph.shape if _reads_image(node) else graph.nodes[node.inputs[0]].shape


def _reads_image(node: Node) -> bool:
    return node.inputs[0] < 0
