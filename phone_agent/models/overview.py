"""Model reports: parameters, FLOPs and memory of a model."""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.models import NAMES, build, model
from phone_agent.nn.graph import Graph, Shape
from phone_agent.nn.plan.memory_plan import (
    DoesNotFitError,
    MemoryPlan,
    estimate_memory,
    estimate_within_budget,
    largest_batch,
)
from phone_agent.nn.plan.options import Options
from phone_agent.nn.summary import Block, blocks, forward_flops, training_flops


@dataclass(frozen=True)
class Overview:
    """`chunks`: the number of parameter tensors, which is the number of messages of a chunkwise allreduce."""

    name: str
    description: str
    shape: Shape
    classes: int
    parameters: int
    chunks: int
    statistics: int
    forward_flops: int

    @property
    def size_bytes(self) -> int:
        return 4 * self.parameters


@dataclass(frozen=True)
class ModelReport:
    """Everything that `models show` prints. Batches are 0 if not even one image fits.

    `memory`: without a budget; `within`: with recomputation to fit the budget, or None if it does not fit.
    """

    overview: Overview
    graph: Graph
    blocks: list[Block]
    training_flops: int
    threads: int
    backend: str
    half: bool
    memory: MemoryPlan
    within: MemoryPlan | None
    budget_bytes: int
    largest_batch: int
    largest_batch_recomputing: int


def overview(name: str, graph: Graph) -> Overview:
    return Overview(
        name=name,
        description=model(name).description,
        shape=graph.shape,
        classes=graph.classes,
        parameters=graph.parameter_count,
        chunks=sum(len(node.parameters) for node in graph.nodes),
        statistics=sum(each.size for node in graph.nodes for each in node.statistics),
        forward_flops=forward_flops(graph),
    )


def all_overviews() -> list[Overview]:
    return [overview(name, build(name)) for name in NAMES]


def make_report(
    name: str, graph: Graph, batch: int, budget_bytes: int, options: Options, *, backend: str
) -> ModelReport:
    """`options`: those that `backend` compiles with."""
    return ModelReport(
        overview=overview(name, graph),
        graph=graph,
        blocks=blocks(graph),
        training_flops=training_flops(graph),
        threads=options.threads,
        backend=backend,
        half=options.half,
        memory=estimate_memory(graph, batch, options),
        within=estimate_within_budget(graph, batch, budget_bytes, options),
        budget_bytes=budget_bytes,
        largest_batch=_largest(graph, budget_bytes, options, recompute=False),
        largest_batch_recomputing=_largest(graph, budget_bytes, options, recompute=True),
    )


def _largest(graph: Graph, budget_bytes: int, options: Options, *, recompute: bool) -> int:
    try:
        return largest_batch(graph, budget_bytes, options, recompute=recompute)
    except DoesNotFitError:
        return 0
