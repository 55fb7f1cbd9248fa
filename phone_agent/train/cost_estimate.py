"""Estimate of a step's compute time, before anything is measured."""

from __future__ import annotations

from functools import lru_cache

from phone_agent.nn.graph import Graph
from phone_agent.nn.plan import cost
from phone_agent.nn.plan.memory_plan import fit_plan
from phone_agent.nn.plan.options import Options

PLANNED_IMAGES = 16  # a whole batch may be more than can be planned at once


def estimate_compute_s(graph: Graph, batch: int) -> float:
    """Roughly; the same on every phone."""
    planned = min(batch, PLANNED_IMAGES)
    return batch / planned * _planned_s(graph, planned)


@lru_cache(maxsize=PLANNED_IMAGES)
def _planned_s(graph: Graph, batch: int) -> float:
    """Cached: planning takes a second, and a forecast asks for many batch sizes."""
    return cost.estimate_seconds(fit_plan(graph, batch, Options()).training.ops)
