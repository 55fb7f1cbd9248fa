"""The whole plan for a graph, a batch size and compile options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.core.library import CoreError
from phone_agent.core.thread_pool import workspace_bytes
from phone_agent.nn.graph import MAX_ELEMENTS, Graph, GraphError
from phone_agent.nn.plan import algorithms, recompute
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.arena import ArenaLayout, assign_offsets, compute_lifetimes
from phone_agent.nn.plan.emit import AddressMap, Emitter
from phone_agent.nn.plan.fuse import fuse
from phone_agent.nn.plan.lowered_graph import LoweredGraph
from phone_agent.nn.plan.ops import Buffer, MemorySpace, OpSpec
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.schedule import Schedule, evaluation_schedule, training_schedule

DUMMY_ADDRESS = 1 << 20  # never dereferenced: sizes can be computed before there is memory


class TensorTooLargeError(GraphError):
    """At this batch size, a tensor has more elements than the core can index."""


@dataclass(frozen=True)
class Plan:
    lowered: LoweredGraph
    addresses: Addresses
    training: Schedule
    evaluation: Schedule
    layouts: tuple[ArenaLayout, ArenaLayout]
    workspace: int
    moments: int = 1

    @property
    def arena(self) -> int:
        return max(layout.bytes for layout in self.layouts)

    @property
    def offsets(self) -> dict[Buffer, int]:
        first, second = self.layouts
        return first.offsets | second.offsets


def make_plan(graph: Graph, batch: int, options: Options, arena_budget: int | None = None) -> Plan:
    """Fits `arena_budget`, if given, with as little recomputation as possible; if it cannot, as small as possible."""
    if batch < 1:
        raise GraphError(f"batch size {batch}: it must be at least 1")
    if not 1 <= options.threads <= MAX_THREADS:
        raise CoreError(f"{options.threads} threads requested, but only 1 to {MAX_THREADS} are supported")
    lowered = fuse(graph)
    _check_element_counts(lowered, batch)
    addresses = Addresses(graph, lowered, batch, options.threads, options.label_smoothing, half=options.half)
    select = algorithms.algorithm_selector(options)
    discarded = recompute.choose_discarded(graph, batch, arena_budget, half=options.half)
    training = training_schedule(lowered, addresses, select, discarded)
    evaluation = evaluation_schedule(lowered, addresses, select)
    training_layout, evaluation_layout = (
        assign_offsets(compute_lifetimes(schedule.ops), options.segment_bytes) for schedule in (training, evaluation)
    )
    ops = (*training.ops, *evaluation.ops)
    workspace = options.workspace(ops, batch) if options.workspace else core_workspace_bytes(ops, options)
    layouts = training_layout, evaluation_layout
    return Plan(lowered, addresses, training, evaluation, layouts, workspace, options.moments)


def _check_element_counts(lowered: LoweredGraph, batch: int) -> None:
    for value in (lowered.image, *(op.y for op in lowered.ops)):
        count = batch * value.storage.pixels * value.storage.channels
        if count > MAX_ELEMENTS:
            raise TensorTooLargeError(
                f"a batch of {batch} needs {count} values in {value.storage.name}; at most {MAX_ELEMENTS} are supported"
            )


def core_workspace_bytes(ops: Sequence[OpSpec], options: Options) -> int:
    emitter = Emitter(AddressMap(dict.fromkeys(MemorySpace, DUMMY_ADDRESS), {}))
    return workspace_bytes(options.threads, emitter.emit(ops), options.isa)
