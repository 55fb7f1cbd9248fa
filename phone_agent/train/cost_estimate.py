"""How long a step computes, before anything was measured."""

from __future__ import annotations

from functools import lru_cache

from phone_agent.nn.graph import Graph
from phone_agent.nn.plan import cost
from phone_agent.nn.plan.memory_plan import fit_plan
from phone_agent.nn.plan.options import Options

PLANNED = 16  # images: a whole share may be more than can be planned at once


def computing_s(graph: Graph, batch: int) -> float:
    """Roughly; the same on every phone."""
    planned = min(batch, PLANNED)
    return batch / planned * _planned_s(graph, planned)


@lru_cache(maxsize=PLANNED)
def _planned_s(graph: Graph, batch: int) -> float:
    """Planning takes a second, and a forecast asks for many batches."""
    return cost.estimate_seconds(fit_plan(graph, batch, Options()).training.ops)
