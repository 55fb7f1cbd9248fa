"""Summary of a network, block by block: layers, parameters and FLOPs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import prod

from phone_agent.nn import graph as nn

JOINS_BEFORE = nn.BatchNorm | nn.Relu | nn.LocalResponseNorm | nn.Dropout  # a block of these joins the one before


@dataclass(frozen=True)
class Block:
    """Layers with a common name prefix. `last` names the last of several equal blocks in a row."""

    name: str
    layers: str
    shape: nn.Shape
    parameters: int
    flops: int  # forward, per image
    times: int = 1
    last: str = ""


def blocks(graph: nn.Graph) -> list[Block]:
    """Blocks in order, with equal neighbors folded. Elementwise and normalization layers join the block before them."""
    folded: list[Block] = []
    for block in (_block(graph, nodes) for nodes in _grouped(graph)):
        if folded and _alike(folded[-1], block):
            folded[-1] = replace(folded[-1], times=folded[-1].times + 1, last=block.name)
        else:
            folded.append(block)
    return folded


def forward_flops(graph: nn.Graph) -> int:
    """Per image: multiplications and additions of convolutions and dense layers, with the direct algorithm."""
    return sum(map(node_flops, graph.nodes))


def node_flops(node: nn.Node) -> int:
    match node.layer:
        case nn.Conv():
            return 2 * prod(node.shape) * prod(node.parameters[0].shape[:3])
        case nn.Dense():
            return 2 * prod(node.parameters[0].shape)
    return 0


def training_flops(graph: nn.Graph) -> int:
    """Per image: forward, backward weights, and backward data of all layers except the first."""
    return sum(node_flops(node) * (2 if node.inputs[0] < 0 else 3) for node in graph.nodes)


def block_name(name: str) -> str:
    """'layer1.0' of layer1.0.conv2, 'features.3' of features.3.squeeze, 'Mixed_5b' of Mixed_5b.branch1x1.conv."""
    first, *more = name.split(".")
    return f"{first}.{more[0]}" if more and more[0].isdigit() else first


def _grouped(graph: nn.Graph) -> Iterator[list[nn.Node]]:
    grouped = [list(nodes) for _, nodes in groupby(graph.nodes, lambda node: block_name(node.name))]
    for before, after in pairwise(range(len(grouped))):
        if all(isinstance(node.layer, JOINS_BEFORE) for node in grouped[after]):
            grouped[after] = grouped[before] + grouped[after]
            grouped[before] = []
    return filter(None, grouped)


def _block(graph: nn.Graph, nodes: list[nn.Node]) -> Block:
    counted = Counter(description for node in nodes if (description := _describe_layer(graph, node)))
    layers = ", ".join(each if times == 1 else f"{times} {each}" for each, times in counted.items())
    parameters = sum(parameter.size for node in nodes for parameter in node.parameters)
    return Block(block_name(nodes[0].name), layers, nodes[-1].shape, parameters, sum(map(node_flops, nodes)))


def _alike(one: Block, other: Block) -> bool:
    return replace(one, name="", times=1, last="") == replace(other, name="")


def _describe_layer(graph: nn.Graph, node: nn.Node) -> str:  # noqa: C901, PLR0911 - one case per layer
    layer: nn.Layer = node.layer
    match layer:
        case nn.Conv():
            input_shape = graph.shape if node.inputs[0] < 0 else graph.nodes[node.inputs[0]].shape
            grouped = f" in {layer.groups} groups" if layer.groups > 1 else ""
            return _window(layer.kernel, layer.stride) + (" depthwise" if layer.is_depthwise(input_shape) else grouped)
        case nn.MaxPool():
            return f"max {_window(layer.kernel, layer.stride)}"
        case nn.AvgPool():
            return f"average {_window(layer.kernel, layer.stride)}"
        case nn.GlobalAvgPool():
            return "mean"
        case nn.BatchNorm():
            return "norm"
        case nn.Relu():
            return "relu6" if layer.six else "relu"
        case nn.LocalResponseNorm():
            return "response norm"
        case nn.Dropout():
            return f"dropout {layer.rate:g}"
        case nn.Add():
            return "add"
        case nn.Concat():
            return "concat"
        case nn.Dense():
            return "dense"


def _window(kernel: nn.IntPair, stride: int) -> str:
    rows, columns = nn.as_pair(kernel)
    return f"{rows}x{columns}" + (f"/{stride}" if stride > 1 else "")
