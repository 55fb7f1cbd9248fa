"""How much memory training may take when nobody said."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.device import memory
from phone_agent.nn.graph import Graph
from phone_agent.nn.plan.memory_plan import PROCESS_BYTES, DoesNotFitError, MemoryPlan, estimate_memory, largest_batch
from phone_agent.nn.plan.options import Options
from phone_agent.train import local_sgd, optimizers

MEGABYTE = 1_000_000
PERCENT = 60  # of what is available: of the rest, Android and what people run on the phone must live
REMAINDERS = frozenset({"int8", "powersgd"})  # wires that keep what they could not say, for the next time


def moments(rules: OptimizerSpec, wire: str, local_steps: int, outer_momentum: float) -> int:
    """Numbers a parameter that are kept from step to step, besides its value and gradient."""
    alone = local_sgd.remembered(local_steps, outer_momentum)
    return len(optimizers.remembered(rules)) + len(alone) + (wire in REMAINDERS)


def saved(rules: OptimizerSpec, local_steps: int, outer_momentum: float) -> int:
    """Numbers a parameter in a checkpoint: a phone that writes one has them twice meanwhile."""
    outer = local_steps > 1 and outer_momentum > 0
    return 1 + len(optimizers.remembered(rules)) + outer


def held(rules: OptimizerSpec, wire: str, local_steps: int, outer_momentum: float, living: Collection[str]) -> int:
    """Numbers a parameter that are kept outside of this process, for the next one, beside those it trains with: all
    that matters is there twice, but what lives there is itself one of the two."""
    return 2 * (1 + moments(rules, wire, local_steps, outer_momentum)) - len(living)


def plan_memory(
    graph: Graph, batch: int, options: Options, affordable: int | None, micro: int = 0
) -> tuple[Options, MemoryPlan]:
    """The options to compile with, and the memory they take with as much of the batch at once as fits.

    Without a budget the plan is lean: no arithmetic is done twice. Only where that is more than the phone can give,
    as much is computed again as makes it fit; and only where nothing makes it, the batch is computed in parts.
    `affordable`: what that is; `micro`: parts of this size at most.
    """
    batch = min(batch, micro or batch)
    if options.memory_bytes is not None:
        return options, _within(graph, batch, options)
    planned = estimate_memory(graph, batch, options)
    if affordable is None or planned.total <= affordable:
        return options, planned
    options = replace(options, memory_bytes=affordable)
    try:
        return options, _within(graph, batch, options)
    except DoesNotFitError as error:
        reason = f"this process and {PERCENT} % of what the phone has available beside it"
        raise AgentError(
            f"{error}, {reason}: close what runs beside it; --memory sets another budget", code=ErrorCode.OUT_OF_MEMORY
        ) from None


def _within(graph: Graph, batch: int, options: Options) -> MemoryPlan:
    try:
        return estimate_memory(graph, batch, options)
    except DoesNotFitError as error:
        return estimate_memory(graph, largest_batch(graph, error.budget, options, recompute=True), options)


def affordable_bytes(taken: int = 0) -> int | None:
    """With this process, which is there already. Unknown where the kernel does not say what is available beside it.

    `taken`: held for this run since an earlier attempt. The plan has it, what is available lacks it: as if it were
    available still, a later attempt plans as the first one did.
    """
    available = memory.available_mb()
    return None if available is None else (available * MEGABYTE + taken) * PERCENT // 100 + PROCESS_BYTES
