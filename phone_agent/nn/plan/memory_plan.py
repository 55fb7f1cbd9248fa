"""How much memory training takes, before anything runs; and what fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.sizes import format_distinct_sizes
from phone_agent.nn.graph import Graph
from phone_agent.nn.plan import plan as planning
from phone_agent.nn.plan import recompute as recomputation
from phone_agent.nn.plan.ops import FLOAT
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import Plan

MARGINS = (1.0, 0.98, 0.95, 0.0)  # a layout may have gaps; 0: whatever it takes
INPUT_BYTES_PER_VALUE = (
    3 * FLOAT + 2
)  # of a value of an image: two batches, one ahead; one to judge by; the bytes they are made from
PROCESS_BYTES = 64 * 1024 * 1024  # Python, numpy, and the planning of a deep network: measured


class DoesNotFitError(AgentError):
    """Says how much it would take, and how much there is; `remedy`, what to do about it."""

    code = ErrorCode.OUT_OF_MEMORY

    def __init__(self, network: str, batch: int, need: int, budget: int, remedy: str) -> None:
        images = "one image" if batch == 1 else f"a batch of {batch}"
        of = f"{network}: " if network else ""
        much, there_is = format_distinct_sizes(need, budget)
        super().__init__(f"{of}{images} needs {much} of memory, the budget is {there_is}")
        self.need, self.budget, self.remedy = need, budget, remedy


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes, by what they are for. `recomputed` names the layers that run once more in backward."""

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
    """Allocates nothing. Under options.memory_bytes, if given."""
    return memory_of(graph, fit_plan(graph, batch, options))


def largest_batch(graph: Graph, budget_bytes: int, options: Options = Options(), *, recompute: bool = False) -> int:  # noqa: B008 - frozen
    """The most images a step can take within the budget; `recompute`: at the price of running convolutions twice."""
    batch = _largest(graph, budget_bytes, options, recompute=recompute)
    if not batch:
        least = _leanest(graph, 1, replace(options, memory_bytes=budget_bytes if recompute else None))
        raise DoesNotFitError(graph.name, 1, memory_of(graph, least).total, budget_bytes, _remedy(0, twice=recompute))
    return batch


def does_not_fit(graph: Graph, batch: int, need: int, budget_bytes: int, options: Options) -> DoesNotFitError:
    """With the batch that would fit; convolutions are computed twice for it only where `options` have a budget."""
    twice = options.memory_bytes is not None
    fitting = _largest(graph, budget_bytes, options, recompute=twice)
    return DoesNotFitError(graph.name, batch, need, budget_bytes, _remedy(fitting, twice=twice))


def _remedy(fitting: int, *, twice: bool) -> str:
    more = "a larger --memory" if twice else "--memory, under which layers are computed twice"
    return f"--batch {fitting}, which fits, or {more}" if fitting else more


def estimate_within_budget(
    graph: Graph,
    batch: int,
    budget_bytes: int,
    options: Options = Options(),  # noqa: B008 - frozen
) -> MemoryPlan | None:
    """What such a step takes where layers may be computed twice; nothing, if it does not fit even so."""
    plan = _leanest(graph, batch, replace(options, memory_bytes=budget_bytes))
    found = memory_of(graph, plan)
    return found if found.total <= budget_bytes else None


def _largest(graph: Graph, budget: int, options: Options, *, recompute: bool) -> int:
    """0 if nothing fits."""
    options = replace(options, memory_bytes=budget if recompute else None)
    batch = _guess(graph, budget, options, recompute=recompute)
    while batch and not _fits(graph, batch, options, budget):
        batch -= max(1, batch // 100)
    while batch and _fits(graph, batch + 1, options, budget):
        batch += 1
    return batch


def _guess(graph: Graph, budget: int, options: Options, *, recompute: bool) -> int:
    """Memory is a constant and so much an image, but for the workspace, which grows a little at times."""
    one = memory_of(graph, planning.make_plan(graph, 1, replace(options, memory_bytes=None)))
    each = recomputation.arena_per_image(graph, recompute=recompute, half=options.half) + one.images
    return max(1, int((budget - (one.total - one.arena - one.images)) / each))


def _fits(graph: Graph, batch: int, options: Options, budget: int) -> bool:
    try:
        return memory_of(graph, _leanest(graph, batch, options)).total <= budget
    except planning.TensorTooLargeError:
        return False


def fit_plan(graph: Graph, batch: int, options: Options) -> Plan:
    """The plan that fits options.memory_bytes with the least computed twice; a lean one where there is no limit."""
    plan = _leanest(graph, batch, options)
    budget = options.memory_bytes
    if budget is not None and (need := memory_of(graph, plan).total) > budget:
        raise does_not_fit(graph, batch, need, budget, options)
    return plan


def _leanest(graph: Graph, batch: int, options: Options) -> Plan:
    """As `fit`; if nothing fits, what comes closest."""
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
    parameters = graph.parameter_count * FLOAT
    again = (step.name for step in plan.training.steps if step.direction.value == "again")
    return MemoryPlan(
        batch=plan.places.batch,
        values=parameters,
        gradients=parameters,
        momenta=plan.moments * parameters,
        statistics=FLOAT * sum(kept.size for node in graph.nodes for kept in node.statistics),
        vectors=plan.network.vectors * FLOAT,
        arena=plan.arena,
        workspace=plan.workspace,
        images=plan.places.batch * prod(graph.shape) * INPUT_BYTES_PER_VALUE,
        process=PROCESS_BYTES,
        recomputed=tuple(dict.fromkeys(again)),
    )
