"""How much memory training takes, before anything runs; and what fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from phone_agent.errors import AgentError
from phone_agent.nn.backends import Options
from phone_agent.nn.graph import Graph
from phone_agent.nn.plan import plan as planning
from phone_agent.nn.plan import recompute as recomputation
from phone_agent.nn.plan.plan import Plan
from phone_agent.nn.plan.steps import FLOAT

MARGINS = (1.0, 0.98, 0.95, 0.0)  # a layout may have gaps; 0: whatever it takes
PROCESS = 64 * 1024 * 1024  # Python, numpy, and the planning of a deep network: measured


class DoesNotFitError(AgentError):
    """Says how much it would take, and how much there is."""

    def __init__(self, batch: int, need: int, budget: int) -> None:
        images = "one image" if batch == 1 else f"a batch of {batch}"
        super().__init__(f"{images} needs {_readable(need)} of memory, the budget is {_readable(budget)}")
        self.need, self.budget = need, budget


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


def estimate(graph: Graph, batch: int, options: Options = Options()) -> MemoryPlan:  # noqa: B008 - frozen
    """Allocates nothing. Under options.memory_bytes, if given."""
    return describe(graph, fit(graph, batch, options))


def largest_batch(graph: Graph, budget_bytes: int, options: Options = Options(), *, recompute: bool = False) -> int:  # noqa: B008 - frozen
    """The most images a step can take within the budget; `recompute`: at the price of running convolutions twice."""
    within = replace(options, memory_bytes=budget_bytes if recompute else None)
    batch = _guess(graph, budget_bytes, within, recompute=recompute)
    while batch > 1 and not _fits(graph, batch, within, budget_bytes):
        batch -= max(1, batch // 100)
    if batch == 1 and not _fits(graph, 1, within, budget_bytes):
        raise DoesNotFitError(1, estimate(graph, 1, replace(options, memory_bytes=None)).total, budget_bytes)
    while _fits(graph, batch + 1, within, budget_bytes):
        batch += 1
    return batch


def _guess(graph: Graph, budget: int, options: Options, *, recompute: bool) -> int:
    """Memory is a constant and so much an image, but for the workspace, which grows a little at times."""
    one = describe(graph, planning.make(graph, 1, replace(options, memory_bytes=None)))
    each = recomputation.arena_per_image(graph, recompute=recompute) + one.images
    return max(1, int((budget - (one.total - one.arena - one.images)) / each))


def _fits(graph: Graph, batch: int, options: Options, budget: int) -> bool:
    try:
        return estimate(graph, batch, options).total <= budget
    except DoesNotFitError:
        return False


def fit(graph: Graph, batch: int, options: Options) -> Plan:
    """The plan that fits options.memory_bytes with the least computed twice; a lean one where there is no limit."""
    plan = planning.make(graph, batch, options)
    budget = options.memory_bytes
    if budget is None:
        return plan
    arena_budget = budget - (describe(graph, plan).total - plan.arena)
    for margin in MARGINS:
        plan = planning.make(graph, batch, options, max(0, int(arena_budget * margin)))
        if describe(graph, plan).total <= budget:
            return plan
    raise DoesNotFitError(batch, describe(graph, plan).total, budget)


def describe(graph: Graph, plan: Plan) -> MemoryPlan:
    parameters = graph.parameter_count * FLOAT
    again = (step.name for step in plan.training.steps if step.direction.value == "again")
    return MemoryPlan(
        batch=plan.places.batch,
        values=parameters,
        gradients=parameters,
        momenta=parameters,
        statistics=FLOAT * sum(kept.size for node in graph.nodes for kept in node.statistics),
        vectors=plan.network.vectors * FLOAT,
        arena=plan.arena,
        workspace=plan.workspace,
        images=plan.places.batch * prod(graph.shape) * FLOAT,
        process=PROCESS,
        recomputed=tuple(dict.fromkeys(again)),
    )


def _readable(amount: int) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"
