"""Networks by name, their graphs and their descriptions."""

from __future__ import annotations

from phone_agent.models import MODELS, UnknownModelError, build, image_shape, model
from phone_agent.models.custom import is_custom, split_name
from phone_agent.models.overview import ModelReport, Overview, all_overviews, make_report
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
    as_pair,
)
from phone_agent.nn.summary import Block, node_flops
