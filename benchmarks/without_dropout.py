"""The four networks of the paper without batch normalization, with dropout disabled: any batch split is equivalent.

clusterctl launch --model benchmarks/without_dropout.py:alexnet
"""

from __future__ import annotations

from dataclasses import replace

from phone_agent import models
from phone_agent.nn.graph import Dropout, Graph, Shape

FULL: Shape = (224, 224, 3)


def alexnet(classes: int = 1000, shape: Shape = FULL) -> Graph:
    return _disable_dropout(models.build("alexnet", classes, shape))


def googlenet(classes: int = 1000, shape: Shape = FULL) -> Graph:
    return _disable_dropout(models.build("googlenet", classes, shape))


def squeezenet_v1_0(classes: int = 1000, shape: Shape = FULL) -> Graph:
    return _disable_dropout(models.build("squeezenet_v1_0", classes, shape))


def squeezenet_v1_1(classes: int = 1000, shape: Shape = FULL) -> Graph:
    return _disable_dropout(models.build("squeezenet_v1_1", classes, shape))


def _disable_dropout(graph: Graph) -> Graph:
    nodes = (replace(node, layer=Dropout(0.0)) if isinstance(node.layer, Dropout) else node for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes))
