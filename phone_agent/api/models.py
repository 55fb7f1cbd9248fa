"""Networks by name, their graphs and their descriptions."""

from __future__ import annotations

from phone_agent.models import MODELS, UnknownModelError, build, image_shape, model
from phone_agent.models.custom import is_own, split
from phone_agent.models.overview import Overview, Sheet, describe, overviews
from phone_agent.nn.graph import (
    Add,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    Graph,
    LocalResponseNorm,
    MaxPool,
    Node,
    Relu,
    Shape,
    sides,
)
from phone_agent.nn.summary import Block, node_flops

__all__ = [
    "MODELS",
    "Add",
    "AvgPool",
    "BatchNorm",
    "Block",
    "Concat",
    "Conv",
    "Dense",
    "Dropout",
    "GlobalAvgPool",
    "Graph",
    "LocalResponseNorm",
    "MaxPool",
    "Node",
    "Overview",
    "Relu",
    "Shape",
    "Sheet",
    "UnknownModelError",
    "build",
    "describe",
    "image_shape",
    "is_own",
    "model",
    "node_flops",
    "overviews",
    "sides",
    "split",
]
