"""Memory budget of training when the user sets none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import CommunicationSpec, OptimizerSpec
from phone_agent.device import memory
from phone_agent.nn.graph import Graph
from phone_agent.nn.plan.memory_plan import PROCESS_BYTES, DoesNotFitError, MemoryPlan, estimate_memory, largest_batch
from phone_agent.nn.plan.options import Options
from phone_agent.train import local_sgd, optimizers

MEGABYTE = 1_000_000
PERCENT = 60  # of the available memory: Android and other apps need the rest
ERROR_FEEDBACK_WIRES = frozenset({"int8", "powersgd"})  # they keep residuals for the next step


def state_floats(optimizer: OptimizerSpec, communication: CommunicationSpec) -> int:
    """Numbers per parameter that live from step to step, besides its value and gradient."""
    local = local_sgd.state_names(communication.local_steps, communication.outer_momentum)
    residuals = communication.wire in ERROR_FEEDBACK_WIRES
    return len(optimizers.state_names(optimizer)) + len(local) + residuals


def checkpoint_floats(optimizer: OptimizerSpec, communication: CommunicationSpec) -> int:
    """Numbers per parameter in a checkpoint file: a phone that writes one has a second copy of them meanwhile."""
    outer = communication.local_steps > 1 and communication.outer_momentum > 0
    return 1 + len(optimizers.state_names(optimizer)) + outer


def memckpt_floats(optimizer: OptimizerSpec, communication: CommunicationSpec, mapped: Collection[str]) -> int:
    """Numbers per parameter that in-memory checkpoints take beside the training state. All state is stored twice, but
    of `mapped` buffers one of the two is the training state itself."""
    return 2 * (1 + state_floats(optimizer, communication)) - len(mapped)


def plan_memory(
    graph: Graph, batch: int, options: Options, affordable: int | None, micro_batch: int = 0
) -> tuple[Options, MemoryPlan]:
    """The options to compile with, and the memory they take for the largest micro-batch that fits.

    Without a limit, nothing is recomputed. If that takes more than `affordable`, as much is recomputed as necessary;
    and only if that does not suffice, the batch is split into micro-batches. `micro_batch`: their maximum size.
    """
    batch = max(min(batch, micro_batch or batch), graph.min_capacity)
    if options.memory_bytes is not None:
        return options, _fit_within(graph, batch, options)
    planned = estimate_memory(graph, batch, options)
    if affordable is None or planned.total <= affordable:
        return options, planned
    options = replace(options, memory_bytes=affordable)
    try:
        return options, _fit_within(graph, batch, options)
    except DoesNotFitError as error:
        reason = f"this process plus {PERCENT}% of the memory available on the phone"
        raise AgentError(
            f"{error}, {reason}: close other apps, or set a limit with --memory", code=ErrorCode.OUT_OF_MEMORY
        ) from None


def _fit_within(graph: Graph, batch: int, options: Options) -> MemoryPlan:
    try:
        return estimate_memory(graph, batch, options)
    except DoesNotFitError as error:
        return estimate_memory(graph, largest_batch(graph, error.budget, options, recompute=True), options)


def affordable_bytes(checkpoint_bytes: int = 0) -> int | None:
    """Memory that training may take, including what this process already uses. None if the kernel does not report
    available memory.

    `checkpoint_bytes`: memory that the checkpoint server already uses for this run. It is part of the plan but no
    longer available; counting it as available makes a later attempt plan as the first one did.
    """
    available = memory.available_mb()
    return None if available is None else (available * MEGABYTE + checkpoint_bytes) * PERCENT // 100 + PROCESS_BYTES
