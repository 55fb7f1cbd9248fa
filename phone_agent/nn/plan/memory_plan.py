"""Memory plan: how much memory training takes, before anything runs, and which batch fits a budget; compute time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.sizes import format_distinct_sizes
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import packing_of
from phone_agent.nn.plan import ops
from phone_agent.nn.plan import plan as planning
from phone_agent.nn.plan import recompute as recomputation
from phone_agent.nn.plan.ops import FLOAT, Direction
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import Plan

MARGINS = (1.0, 0.98, 0.95, 0.0)  # of the arena budget: a layout may have gaps; 0: as small as possible
# Two training batches (one prefetched), one evaluation batch, and the bytes they are decoded from.
INPUT_BYTES_PER_VALUE = 3 * FLOAT + 2
PROCESS_BYTES = 64 * 1024 * 1024  # measured: Python, numpy, and planning a deep network


class DoesNotFitError(AgentError):
    """The message says how much memory is needed and how much there is; `remedy` says what to do."""

    code = ErrorCode.OUT_OF_MEMORY

    def __init__(self, network: str, batch: int, need: int, budget: int, remedy: str) -> None:
        images = "one image" if batch == 1 else f"a batch of {batch}"
        prefix = f"{network}: " if network else ""
        needed, available = format_distinct_sizes(need, budget)
        super().__init__(f"{prefix}{images} needs {needed} of memory, the budget is {available}")
        self.need, self.budget, self.remedy = need, budget, remedy


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose. `recomputed` names the layers that run again in backward."""

    batch: int
    values: int
    gradients: int
    momenta: int
    statistics: int
    vectors: int
    arena: int
    workspace: int
    images: int
    process: int
    recomputed: tuple[str, ...]

    @property
    def total(self) -> int:
        state = self.values + self.gradients + self.momenta + self.statistics
        return state + self.vectors + self.arena + self.workspace + self.images + self.process


def estimate_memory(graph: Graph, batch: int, options: Options = Options()) -> MemoryPlan:  # noqa: B008 - frozen
    """The memory of a training step, within options.memory_bytes if given. Allocates nothing."""
    return memory_of(graph, fit_plan(graph, batch, options))


def largest_batch(graph: Graph, budget_bytes: int, options: Options = Options(), *, recompute: bool = False) -> int:  # noqa: B008 - frozen
    """The largest batch that fits the budget. `recompute`: convolutions may be computed twice to save memory."""
    batch = _largest(graph, budget_bytes, options, recompute=recompute)
    if not batch:
        least = graph.min_capacity
        smallest = _smallest_plan(graph, least, replace(options, memory_bytes=budget_bytes if recompute else None))
        remedy = _remedy(0, recompute=recompute)
        raise DoesNotFitError(graph.name, least, memory_of(graph, smallest).total, budget_bytes, remedy)
    return batch


def does_not_fit(graph: Graph, batch: int, need: int, budget_bytes: int, options: Options) -> DoesNotFitError:
    """The error, with the largest batch that fits. Recomputation counts only if `options` have a memory budget."""
    recompute = options.memory_bytes is not None
    largest = _largest(graph, budget_bytes, options, recompute=recompute)
    return DoesNotFitError(graph.name, batch, need, budget_bytes, _remedy(largest, recompute=recompute))


def _remedy(largest: int, *, recompute: bool) -> str:
    more = "a larger --memory" if recompute else "--memory, which recomputes layers to save memory"
    return f"use --batch {largest}, which fits, or {more}" if largest else f"use {more}"


def estimate_within_budget(
    graph: Graph,
    batch: int,
    budget_bytes: int,
    options: Options = Options(),  # noqa: B008 - frozen
) -> MemoryPlan | None:
    """The memory of a step that recomputes layers to fit the budget; None if it does not fit."""
    plan = _smallest_plan(graph, batch, replace(options, memory_bytes=budget_bytes))
    memory = memory_of(graph, plan)
    return memory if memory.total <= budget_bytes else None


def _largest(graph: Graph, budget: int, options: Options, *, recompute: bool) -> int:
    """The largest batch that fits; 0 if not even `min_capacity` images do."""
    options = replace(options, memory_bytes=budget if recompute else None)
    batch = _guess_batch(graph, budget, options, recompute=recompute)
    while batch and not _fits(graph, batch, options, budget):
        batch -= max(1, batch // 100)
    while batch and _fits(graph, batch + 1, options, budget):
        batch += 1
    return batch if batch >= graph.min_capacity else 0


def _guess_batch(graph: Graph, budget: int, options: Options, *, recompute: bool) -> int:
    """Memory is a constant plus a term per image, except for the workspace, which grows a little now and then."""
    one = memory_of(graph, planning.make_plan(graph, 1, replace(options, memory_bytes=None)))
    per_image = recomputation.arena_per_image(graph, recompute=recompute, half=options.half) + one.images
    return max(1, int((budget - (one.total - one.arena - one.images)) / per_image))


def _fits(graph: Graph, batch: int, options: Options, budget: int) -> bool:
    try:
        return memory_of(graph, _smallest_plan(graph, batch, options)).total <= budget
    except planning.TensorTooLargeError:
        return False


def fit_plan(graph: Graph, batch: int, options: Options) -> Plan:
    """The plan that fits options.memory_bytes with the least recomputation; without a budget, a small plan."""
    plan = _smallest_plan(graph, batch, options)
    budget = options.memory_bytes
    if budget is not None and (need := memory_of(graph, plan).total) > budget:
        raise does_not_fit(graph, batch, need, budget, options)
    return plan


def _smallest_plan(graph: Graph, batch: int, options: Options) -> Plan:
    """Like `fit_plan`, but returns the smallest plan if nothing fits."""
    plan = planning.make_plan(graph, batch, options)
    budget = options.memory_bytes
    if budget is None:
        return plan
    arena_budget = budget - (memory_of(graph, plan).total - plan.arena)
    for margin in MARGINS:
        plan = planning.make_plan(graph, batch, options, max(0, int(arena_budget * margin)))
        if memory_of(graph, plan).total <= budget:
            break
    return plan


def memory_of(graph: Graph, plan: Plan) -> MemoryPlan:
    parameters = packing_of(graph).size * FLOAT
    recomputed = (op.name for op in plan.training.ops if op.direction == Direction.RECOMPUTE)
    return MemoryPlan(
        batch=plan.addresses.batch,
        values=parameters,
        gradients=parameters,
        momenta=plan.moments * parameters,
        statistics=FLOAT * sum(statistic.size for node in graph.nodes for statistic in node.statistics),
        vectors=plan.lowered.vector_floats * FLOAT,
        arena=plan.arena,
        workspace=plan.workspace,
        images=plan.addresses.batch * prod(graph.shape) * INPUT_BYTES_PER_VALUE,
        process=PROCESS_BYTES,
        recomputed=tuple(dict.fromkeys(recomputed)),
    )


PLANNED_IMAGES = 16  # a whole batch may be more than can be planned at once


def estimate_compute_s(graph: Graph, batch: int) -> float:
    """Roughly; the same on every phone."""
    planned = min(batch, PLANNED_IMAGES)
    return batch / planned * _planned_s(graph, planned)


@lru_cache(maxsize=PLANNED_IMAGES)
def _planned_s(graph: Graph, batch: int) -> float:
    """Cached: planning takes a second, and a forecast asks for many batch sizes."""
    return ops.estimate_seconds(fit_plan(graph, batch, Options()).training.ops)
